"""The sequential dual method: visits of whole examples, in one piece or by shards."""
