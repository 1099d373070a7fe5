package sherman

import (
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sherman/lock"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Node is a compute node: what its clients share. They live and die together: for the memory servers they are one owner of locks.
// Its methods may be called by any thread.
type Node struct {
	cfg   NodeConfig
	locks *lock.Table
	cache cache

	mu      sync.Mutex // never held over a wait
	super   *layout.Superblock
	servers []ownership
	seq     uint32
	root    layout.Addr // the last root that was seen
	sights  map[lock.Key]sight
	spaces  []space // of clients that were closed
	stats   NodeStats
}

// ownership is who the node is for one memory server.
type ownership struct {
	owner uint32 // 0: not known yet, or fenced
	// boot is the life of the server that was seen last.
	boot uint64
	// fenced counts how often an owner of this node was fenced.
	fenced int
}

// sight is a tag of another node in a lock word, and since when it was seen there.
type sight struct {
	tag   layout.Tag
	since clock.Time
}

// maxSights bounds the tags that a node watches: one for each lock that its clients wait for.
const maxSights = 1 << 16

// NewNode makes a compute node without clients.
func NewNode(cfg NodeConfig) (*Node, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, locks: lock.New(max(cfg.HandOver, 0)), servers: make([]ownership, len(cfg.Servers)),
		sights: make(map[lock.Key]sight), stats: newNodeStats(),
	}
	n.cache.limit = cfg.CacheBytes
	return n, nil
}

// owner is the node's name at a server; 0 if it has none.
func (n *Node) owner(server int) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.servers[server].owner
}

// claim makes id the node's name at a server, unless another client has got one meanwhile.
func (n *Node) claim(server int, id uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if o := &n.servers[server]; o.owner == 0 {
		o.owner = id
	}
}

// fenced notes that the node cannot use its name at a server any more.
func (n *Node) fenced(server int, id uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if o := &n.servers[server]; o.owner == id && id != 0 {
		o.owner = 0
		o.fenced++
		n.stats.Fenced++
	}
}

// nextTag is a tag that was never used.
func (n *Node) nextTag(owner uint32) layout.Tag {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seq++
	return layout.MakeTag(owner, n.seq)
}

// rootHint is the last root that was seen, SetRoot notes another one.
func (n *Node) rootHint() layout.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.root
}

func (n *Node) setRoot(a layout.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.root = a
}

// sighted notes that a tag of another owner was seen by a look that began at asked, and returns for how long it has been the same. How
// long the last answer took is no part of that: it may be old, as that of a client that was frozen.
func (n *Node) sighted(k lock.Key, tag layout.Tag, asked, now clock.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, known := n.sights[k]
	if !known || s.tag != tag {
		if !known && len(n.sights) >= maxSights {
			clear(n.sights) // leases begin anew
		}
		n.sights[k] = sight{tag, now}
		return 0
	}
	return max(0, asked.Sub(s.since))
}

// unsighted forgets a lock that was free.
func (n *Node) unsighted(k lock.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sights, k)
}

// count changes the statistics.
func (n *Node) count(f func(s *NodeStats)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(&n.stats)
}
