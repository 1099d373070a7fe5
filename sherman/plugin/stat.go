package plugin

import (
	"net/http"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/audit"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Stat describes a tree as one compute node sees it, and the node itself.
type Stat struct {
	Tree Info `json:"tree"`
	// Root is the address of the root page. Used is how many bytes of each memory server were
	// allocated to pages. Size is how many bytes can be allocated. Free is how many bytes of Used
	// belong to pages that have left the tree and can be reused (at most maxFree pages are
	// counted). Lease is in milliseconds.
	Root  string   `json:"root"`
	Used  []uint64 `json:"used"`
	Size  []uint64 `json:"size"`
	Free  []uint64 `json:"free"`
	Lease float64  `json:"leaseMs"`
	// Locks are the held locks. If a lock has another tag in a later Stat, it was released or taken
	// over meanwhile.
	Locks []Lock   `json:"locks"`
	Node  NodeStat `json:"node"`
}

// Lock is a lock that is held.
type Lock struct {
	// Server is the memory server's name. Index is the number of the lock word there.
	Server string `json:"server"`
	Index  int    `json:"index"`
	// Owner and Acquisition are the parts of the tag in the lock word: the compute node that holds
	// the lock, and the number of its acquisition.
	Owner       uint32 `json:"owner"`
	Acquisition uint32 `json:"acquisition"`
	// Peer is the address from which the owner last connected to the memory server. Host is the
	// rack's name for that address. QPs is how many connections of the owner have not failed.
	Host   string `json:"host"`
	Peer   string `json:"peer"`
	QPs    int    `json:"queuePairs"`
	Fenced bool   `json:"fenced"`
	Alive  bool   `json:"alive"`
	// SeenMs is how long this node has seen the tag in the word. LeftMs is the time until this node
	// suspects the owner. Both are in milliseconds.
	SeenMs float64 `json:"seenMs"`
	LeftMs float64 `json:"leaseLeftMs"`
}

// NodeStat has the counters of a compute node's clients: see sherman.NodeStats. Waits are in
// microseconds.
type NodeStat struct {
	Acquires    uint64    `json:"acquires"`
	HandOvers   uint64    `json:"handOvers"`
	CAS         uint64    `json:"cas"`
	Recovered   uint64    `json:"recovered"`
	Fenced      uint64    `json:"fenced"`
	Doubts      uint64    `json:"doubts"`
	Splits      uint64    `json:"splits"`
	Roots       uint64    `json:"roots"`
	Healed      uint64    `json:"healed"`
	Moves       uint64    `json:"moves"`
	Merges      MergeStat `json:"merges"`
	Torn        uint64    `json:"torn"`
	CacheHits   uint64    `json:"cacheHits"`
	CacheMisses uint64    `json:"cacheMisses"`
	CachePages  int       `json:"cachePages"`
	CacheBytes  int       `json:"cacheBytes"`
	WaitP50     float64   `json:"waitP50Usec"`
	WaitP99     float64   `json:"waitP99Usec"`
	WaitMax     float64   `json:"waitMaxUsec"`
}

// MergeStat counts pages that were merged (they have left the tree), pages that were reused, and
// searches that came to a page which had left the tree and so began again.
type MergeStat struct {
	Merged   uint64 `json:"merged"`
	Reused   uint64 `json:"reused"`
	Restarts uint64 `json:"restarts"`
}

func nodeStat(s *sherman.NodeStats) NodeStat {
	us := func(p float64) float64 { return float64(s.Wait.ValueAtPercentile(p)) / 1e3 }
	return NodeStat{
		Acquires: s.Acquires, HandOvers: s.HandOvers, CAS: s.CAS, Recovered: s.Recovered, Fenced: s.Fenced, Doubts: s.Doubts,
		Splits: s.Splits, Roots: s.Roots, Healed: s.Healed, Moves: s.Moves, Torn: s.Torn, Merges: MergeStat{s.Merged, s.Reused, s.Restarts},
		CacheHits: s.CacheHits, CacheMisses: s.CacheMisses,
		CachePages: s.CachePages, CacheBytes: s.CacheBytes, WaitP50: us(50), WaitP99: us(99), WaitMax: us(100),
	}
}

// maxFree is the greatest number of pages of a server's list of unused pages that stat counts. Each
// page costs one READ.
const maxFree = 10_000

func (n *node) stat(r *http.Request) (out Stat, err error) {
	err = n.With(r, "stat", func(t *tree, c *sherman.Client, rt verbs.Runtime) error {
		deadline := rt.Now().Add(joinPatience)
		root, err := c.Root(deadline)
		if err != nil {
			return err
		}
		out.Tree, out.Root, out.Lease = infoOf(c.Super()), root.String(), ms(t.cfg.Lease)
		for i := range t.cfg.Servers {
			end, err := c.AllocEnd(i, deadline)
			if err != nil {
				return err
			}
			super := c.Super()
			first := super.FirstChunk()
			free, err := c.Unused(i, maxFree, deadline)
			if err != nil {
				return err
			}
			page := uint64(super.Shape.Page)
			out.Used = append(out.Used, max(end, first)-first)
			out.Size = append(out.Size, (c.Len(i)-first)/page*page)
			out.Free = append(out.Free, uint64(free)*page)
		}
		locks, err := audit.Locks(c, deadline)
		if err != nil {
			return err
		}
		for i := range locks {
			out.Locks = append(out.Locks, n.lockOf(t, &locks[i]))
		}
		stats := t.node.Stats()
		out.Node = nodeStat(&stats)
		return nil
	})
	return out, err
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (n *node) lockOf(t *tree, l *sherman.LockState) Lock {
	out := Lock{
		Server: t.cfg.Servers[l.Server], Index: l.Index, Owner: l.Tag.Owner(), Acquisition: l.Tag.Seq(), Peer: l.Holder.Peer, QPs: l.Holder.QPs,
		Fenced: l.Holder.Fenced, Alive: audit.Alive(l), SeenMs: ms(l.Seen), LeftMs: ms(l.Left),
	}
	out.Host = n.Host.NameOf(out.Peer)
	return out
}
