"""Messages of the library in the words of a shell."""

import re

from dask_mcsvm.cli._flags import FLAGS

# Messages of the library end in what to type in Python; here one types something else.
IN_THE_SHELL = (
    ("pass overwrite=True", "pass --overwrite"),
    ("write one with write_dataset", "make one with dask mcsvm convert"),
    ("write it again with write_dataset(..., overwrite=True)", "convert it again, --overwrite"),
    ("write the dataset again with a smaller block_rows", "convert with a smaller --block-rows"),
    ("write the dataset again", "convert them again"),
    ("save one with save", "make one with dask mcsvm fit"),
    ("save it again with save(..., overwrite=True)", "fit it again with --overwrite"),
    ("type fit again with resume=True", "type the same command with --resume"),
    ("start one and type fit again with", "start one and type the command again with"),
    ("X.rechunk({0: rows}) or write_dataset(..., block_rows=rows)", "convert with --block-rows"),
    (
        "X is read chunk by chunk; use solver='auto', or pass X.compute()",
        "DATA is read chunk by chunk; use --solver auto, or leave out --scheduler, "
        "--memory-limit, --checkpoint and --scratch",
    ),
    ("(or checkpoint=...)", "(or --checkpoint)"),
    (" to have coef_ in memory", " to have it in memory"),
)

_OPTION = {flag.parameter: flag.option for flag in FLAGS}
#: Parameters that may be True and whose options are no flags.
_CHOSEN = {flag.parameter for flag in FLAGS if flag.kind is not bool}
_ANY = "|".join(sorted(_OPTION, key=len, reverse=True))
# A value ends with its quotes, or where the sentence goes on.
_VALUE = r"(['\"])(?P<quoted>.*?)\2|(?P<plain>[^\s,;()]*[^\s,;().])"
_ASSIGNED = re.compile(rf"(?<![\w-])({_ANY})=(?:True\b|{_VALUE})")
_NAMED = re.compile(
    rf"(^|; |: |raise |or |, |and )({_ANY})(?= is | has | holds | needs |,| or |;|\.?$)"
)


def in_the_shell(text: str) -> str:
    """A message of the library with what to type in a shell.

    Examples
    --------
    >>> in_the_shell("C is -1; it must be a number above 0, for example C=1.0.")
    '--C is -1; it must be a number above 0, for example --C 1.0.'
    >>> in_the_shell("solver='sdm' does not; use solver='auto' and resume=True.")
    '--solver sdm does not; use --solver auto and --resume.'
    >>> in_the_shell("scale the rows of X, or type standardize=True.")
    'scale the rows of X, or type --standardize yes.'
    >>> in_the_shell("type dtype='float64', or raise tol.")
    'type --dtype float64, or raise --tol.'
    """
    for python, shell in IN_THE_SHELL:
        text = text.replace(python, shell)
    text = _ASSIGNED.sub(_assigned, text)
    return _NAMED.sub(lambda found: found[1] + _OPTION[found[2]], text)


def _assigned(found: re.Match[str]) -> str:
    value = found["quoted"] or found["plain"]
    if value is None and found[1] in _CHOSEN:
        value = "yes"
    return _OPTION[found[1]] + (f" {value}" if value else "")
