package sherman

import (
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sherman/lock"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/lease"
)

// Node is a compute node: the state that its clients share. To the memory servers, all clients of a
// node are one owner of locks, and a fence ends the connections of all of them. Any thread may call
// the methods of a Node.
type Node struct {
	cfg   NodeConfig
	locks *lock.Table
	cache cache

	mu      sync.Mutex // guards the fields below; never held during a wait
	super   *layout.Superblock
	owners  []uint32    // the owner number at each server; 0 means none, or that it was fenced
	seq     uint32      // the acquisition number of the last tag
	root    layout.Addr // the address of the root that a client of the node has seen last
	sights  map[lock.Key]lease.Watch[layout.Tag]
	pool    pool
	clients int // how many clients are open
	stats   NodeStats
}

// maxSights is the greatest number of tags that a node watches. It watches one for each lock that
// its clients have found held.
const maxSights = 1 << 16

func NewNode(cfg NodeConfig) (*Node, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, locks: lock.New(max(cfg.HandOver, 0)), owners: make([]uint32, len(cfg.Servers)),
		sights: make(map[lock.Key]lease.Watch[layout.Tag]), stats: newNodeStats(),
	}
	n.cache.limit = cfg.CacheBytes
	return n, nil
}

func (n *Node) joined() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clients++
}

// owner returns the node's owner number at a server; 0 if it has none.
func (n *Node) owner(server int) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.owners[server]
}

// claim makes id the node's owner number at a server, unless another client of the node has set one
// meanwhile.
func (n *Node) claim(server int, id uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.owners[server] == 0 {
		n.owners[server] = id
	}
}

// fenced is called when a server rejects owner number id of the node, because the number was
// fenced.
func (n *Node) fenced(server int, id uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.owners[server] == id && id != 0 {
		n.owners[server] = 0
		n.stats.Fenced++
	}
}

// nextTag returns a tag of owner that the node has never used.
func (n *Node) nextTag(owner uint32) layout.Tag {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seq++
	return layout.MakeTag(owner, n.seq)
}

// rootHint returns the address of the last root page that a client of the node has seen, or 0.
// setRoot sets this address.
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

// sighted notes that a request for a lock word, posted at time `asked`, found a tag. It returns how
// long the node has seen this tag in the word.
func (n *Node) sighted(k lock.Key, tag layout.Tag, asked, now clock.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, known := n.sights[k]
	if !known && len(n.sights) >= maxSights {
		clear(n.sights) // the leases of all watched tags begin again
	}
	seen := s.Seen(tag, asked, now)
	n.sights[k] = s
	return seen
}

// forgetSight forgets the tag that this node has seen in a lock word, because the node has taken
// the lock.
func (n *Node) forgetSight(k lock.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sights, k)
}

// count calls f to change the counters of the node.
func (n *Node) count(f func(s *NodeStats)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(&n.stats)
}
