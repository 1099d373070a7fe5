package sherman

import (
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sherman/lock"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Node is a compute node: the state that its clients share. To the memory servers its clients are
// one owner of locks, and a fence concerns all of them. Any thread may call its methods.
type Node struct {
	cfg   NodeConfig
	locks *lock.Table
	cache cache

	mu      sync.Mutex // never held during a wait
	super   *layout.Superblock
	servers []ownership
	seq     uint32
	root    layout.Addr // the address of the root that a client of the node has seen last
	sights  map[lock.Key]sight
	pool    pool
	clients int // how many clients are open
	stats   NodeStats
}

// ownership is the node's identity at one memory server.
type ownership struct {
	owner uint32 // 0: the node has no number yet, or it was fenced
	// boot is the boot number of the server at the last connection.
	boot uint64
	// fenced counts how many times an owner number of this node was fenced.
	fenced int
}

// sight is a tag of another node in a lock word, with the time at which this node first saw it
// there.
type sight struct {
	tag   layout.Tag
	since clock.Time
}

// maxSights bounds the tags that a node watches, one for each lock that its clients wait for.
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
	n.pool.exhausted = make([]bool, len(cfg.Servers))
	return n, nil
}

// joined counts a new client of the node.
func (n *Node) joined() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clients++
}

// owner returns the node's owner number at a server; 0 if it has none.
func (n *Node) owner(server int) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.servers[server].owner
}

// claim makes id the node's owner number at a server, unless another client of the node has set a
// number meanwhile.
func (n *Node) claim(server int, id uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if o := &n.servers[server]; o.owner == 0 {
		o.owner = id
	}
}

// fenced records that a server has fenced an owner number of the node.
func (n *Node) fenced(server int, id uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if o := &n.servers[server]; o.owner == id && id != 0 {
		o.owner = 0
		o.fenced++
		n.stats.Fenced++
	}
}

// nextTag returns a tag that was never used.
func (n *Node) nextTag(owner uint32) layout.Tag {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seq++
	return layout.MakeTag(owner, n.seq)
}

// rootHint returns the last root that a client has seen; setRoot sets it.
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

// sighted records that a poll of a lock word, posted at time asked, found a tag of another owner.
// It returns for how long the word has had this tag. That time ends at asked, because the answer to
// the poll may be old, for example if the client was suspended.
func (n *Node) sighted(k lock.Key, tag layout.Tag, asked, now clock.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, known := n.sights[k]
	if !known || s.tag != tag {
		if !known && len(n.sights) >= maxSights {
			clear(n.sights) // so the leases of all watched tags begin again
		}
		n.sights[k] = sight{tag, now}
		return 0
	}
	return max(0, asked.Sub(s.since))
}

// forgetSight forgets what this node has seen in a lock word, because the node has taken the word.
func (n *Node) forgetSight(k lock.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sights, k)
}

// count calls f to change the counters.
func (n *Node) count(f func(s *NodeStats)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(&n.stats)
}
