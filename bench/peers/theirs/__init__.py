"""The subjects that run in the peers' own environment. They import nothing of ours but `bench.peers.talking`."""
