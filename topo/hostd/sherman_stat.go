package hostd

import (
	"net/http"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/audit"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// TreeStat is a tree as one compute node sees it.
type TreeStat struct {
	Tree TreeInfo `json:"tree"`
	// Root is the address of the root page, Used what was given out of each server's memory, in bytes.
	Root  string   `json:"root"`
	Used  []uint64 `json:"used"`
	Lease float64  `json:"leaseMs"`
	// Locks are those that are held. What moves between two looks is held by the living.
	Locks []TreeLock `json:"locks"`
	Node  TreeNode   `json:"node"`
}

// TreeLock is a lock that is held.
type TreeLock struct {
	// Server is the memory server's name, Index the number of the word there.
	Server string `json:"server"`
	Index  int    `json:"index"`
	// Owner and Acquisition are the tag. Peer is the host of the owner as the memory server knows it.
	Owner       uint32 `json:"owner"`
	Acquisition uint32 `json:"acquisition"`
	Host        string `json:"host"`
	Peer        string `json:"peer"`
	QPs         int    `json:"queuePairs"`
	Fenced      bool   `json:"fenced"`
	Alive       bool   `json:"alive"`
	// SeenMs is for how long this node has seen the tag, LeftMs when it will suspect the owner.
	SeenMs float64 `json:"seenMs"`
	LeftMs float64 `json:"leaseLeftMs"`
}

// TreeNode counts what the clients of a compute node did: see sherman.NodeStats. Times are in microseconds.
type TreeNode struct {
	Acquires    uint64  `json:"acquires"`
	HandOvers   uint64  `json:"handOvers"`
	CAS         uint64  `json:"cas"`
	Recovered   uint64  `json:"recovered"`
	Fenced      uint64  `json:"fenced"`
	Doubts      uint64  `json:"doubts"`
	Splits      uint64  `json:"splits"`
	Roots       uint64  `json:"roots"`
	Healed      uint64  `json:"healed"`
	Moves       uint64  `json:"moves"`
	Torn        uint64  `json:"torn"`
	CacheHits   uint64  `json:"cacheHits"`
	CacheMisses uint64  `json:"cacheMisses"`
	CachePages  int     `json:"cachePages"`
	CacheBytes  int     `json:"cacheBytes"`
	WaitP50     float64 `json:"waitP50Usec"`
	WaitP99     float64 `json:"waitP99Usec"`
	WaitMax     float64 `json:"waitMaxUsec"`
}

func treeNode(s *sherman.NodeStats) TreeNode {
	us := func(p float64) float64 { return float64(s.Wait.ValueAtPercentile(p)) / 1e3 }
	return TreeNode{
		Acquires: s.Acquires, HandOvers: s.HandOvers, CAS: s.CAS, Recovered: s.Recovered, Fenced: s.Fenced, Doubts: s.Doubts,
		Splits: s.Splits, Roots: s.Roots, Healed: s.Healed, Moves: s.Moves, Torn: s.Torn, CacheHits: s.CacheHits, CacheMisses: s.CacheMisses,
		CachePages: s.CachePages, CacheBytes: s.CacheBytes, WaitP50: us(50), WaitP99: us(99), WaitMax: us(100),
	}
}

// treeStat looks at the tree.
func (h *Host) treeStat(r *http.Request) (out TreeStat, err error) {
	err = h.withTree(r, "stat", func(t *tree, c *sherman.Client, rt verbs.Runtime) error {
		deadline := rt.Now().Add(joinPatience)
		root, err := c.Root(deadline)
		if err != nil {
			return err
		}
		out.Tree, out.Root, out.Lease = treeInfo(c.Super()), root.String(), ms(t.cfg.Lease)
		for i := range t.addrs {
			end, err := c.AllocEnd(i, deadline)
			if err != nil {
				return err
			}
			out.Used = append(out.Used, end)
		}
		locks, err := audit.Locks(c, deadline)
		if err != nil {
			return err
		}
		for i := range locks {
			out.Locks = append(out.Locks, h.treeLock(t, &locks[i]))
		}
		stats := t.node.Stats()
		out.Node = treeNode(&stats)
		return nil
	})
	return out, err
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (h *Host) treeLock(t *tree, l *sherman.LockState) TreeLock {
	out := TreeLock{
		Server: t.cfg.Servers[l.Server], Index: l.Index, Owner: l.Tag.Owner(), Acquisition: l.Tag.Seq(), Peer: l.Holder.Peer, QPs: l.Holder.QPs,
		Fenced: l.Holder.Fenced, Alive: audit.Alive(l), SeenMs: ms(l.Seen), LeftMs: ms(l.Left),
	}
	out.Host = out.Peer
	for i := range h.rack.Hosts {
		if p := &h.rack.Hosts[i]; out.Peer == p.IPv4.String() || out.Peer == p.IPv6.String() {
			out.Host = p.Name
		}
	}
	return out
}
