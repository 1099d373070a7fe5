package clover

import (
	"cmp"
	"net/netip"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Service is the name under which the metadata server's connection manager listens.
const Service = rpc.Service

// Config describes a client.
type Config struct {
	Context verbs.Context
	Manager rdmacm.Dialer
	Meta    netip.Addr
	Params  rdmacm.Params
	// MaxValue is the length in bytes of the longest value that the client can read or write. The
	// size of its registered memory depends on MaxValue. 0 means 4096.
	MaxValue int
	// Cached is how many locations the client's own cache has room for; 0 means 1 << 20.
	Cached int
	// Cache, if not nil, is a cache that the client shares with other clients of its process, all
	// of the same store. nil means that the client has a cache of its own.
	Cache *Cache
	// Reporter, if not nil, reports the client's appends together with those of other clients of
	// its process. nil means that the client reports them itself.
	Reporter *Reporter
	// Turns, if not nil, is shared by clients of one process and one store. They PUT the same key
	// one after another, and one PUT answers the PUTs that wait for it; see Turns. With nil, each
	// client appends without regard to the others, as the published client does.
	Turns *Turns
	// Batch is how many nodes of a class the client requests from the metadata server at a time, at
	// most 64; 0 means 64. With several memory servers and without Spread, it requests fewer (see
	// session.batch).
	Batch int
	// Spread is true if the client appends nodes of any memory server, as the published client
	// does. Without Spread, the chain of a key stays on one server as long as that server has free
	// nodes, so that a switch can steer all requests for the key.
	Spread bool
	// LazyShortcut is true if a GET reads the shortcut only after the first node that it reads has
	// named a successor, and then together with the successor. This saves the READ of the shortcut
	// in each GET whose first node is the newest one. The published client reads the shortcut
	// together with the first node.
	LazyShortcut bool
	// Chase determines what a PUT does after another client has appended to the same node first. If
	// Chase is true, the PUT tries at once to append to the successor that it has found. That takes
	// one more round trip for each append that came before its own. If Chase is false, the PUT
	// first reads to the end of the chain, as the published client does. That takes at least two
	// more round trips.
	Chase bool
	// PublishedShortcuts is true if the client uses shortcuts as the published client does. A PUT
	// reads the shortcut of its key once and then follows the chain to its end. The client writes
	// the shortcuts of the keys in a report when it sends the report, for each key that of its
	// oldest append in the report. Without PublishedShortcuts, a PUT reads the shortcut again every
	// few nodes, and the client writes it after each append as long as others append first.
	PublishedShortcuts bool
	// Records is how many appends the client collects before it reports them to the metadata
	// server, 1 to 64; 0 means 48. The report also asks for as many nodes as the client lacks of a
	// batch, so that a client that works makes no other call. An operation sends no report while
	// the previous one is unanswered. A report has at most 64 appends. Once in half a lease, an
	// operation reports fewer than Records appends, too.
	Records int

	// leave removes the client from its Group; nil means that the client is in no Group.
	leave func() error
	// device and dialer belong to the Group. The client uses them for requests that do not go over
	// the shared queue pair.
	device verbs.Context
	dialer rdmacm.Dialer
}

const (
	defaultMaxValue = 4096
	defaultCached   = 1 << 20
	// maxPending is how many appends the client remembers to report. If there are more, it drops
	// the oldest ones. The metadata server learns of their nodes when the client introduces itself
	// again.
	maxPending = 1024
	// defaultRecords is less than a batch of nodes: when the answer to a report brings nodes, the
	// client still has some.
	defaultRecords = rpc.MaxBatch * 3 / 4
)

func (c Config) withDefaults() Config {
	c.MaxValue = cmp.Or(c.MaxValue, defaultMaxValue)
	c.MaxValue = min(c.MaxValue, layout.MaxSlab)
	c.Cached = cmp.Or(c.Cached, defaultCached)
	if c.Batch < 1 || c.Batch > rpc.MaxBatch {
		c.Batch = rpc.MaxBatch
	}
	c.Records = min(cmp.Or(max(c.Records, 0), defaultRecords), rpc.MaxBatch)
	return c
}

// addMeta adds the metadata server to the peers of a fabric. answers is how many answers of the
// server may be in flight at a time; each needs a receive.
func (c *Config) addMeta(f *remotemem.Fabric, answers int) (peer int, err error) {
	return f.AddPeer(c.Meta, answers, func(qp verbs.QP, until clock.Time) error {
		_, err := c.Manager.Dial(qp, c.Meta, Service, c.Params, nil, until)
		return err
	})
}

// areas has the offsets of the areas in the client's registered buffer, and the length of the
// buffer (len). The area `in` is for a node that the client reads, `out` for a node that it writes.
// `words` has wordSlots words. `request` and `answer` belong to calls, `async` and `asyncAnswer` to
// reports.
type areas struct {
	in, out, words, request, async, answer, asyncAnswer, len int
}

// wordSlots is the number of words in the area `words`. The first ones are for results of READs and
// compare-and-swaps, the last shortcutSlots for shortcuts that the client writes.
const (
	wordSlots     = 16 + shortcutSlots
	shortcutSlots = rpc.MaxBatch
)

func (c *Config) areas() areas {
	slab := layout.MinSlab
	for slab < c.MaxValue+layout.Hardened.Overhead() && slab < layout.MaxSlab {
		slab *= 2
	}
	var a areas
	a.out = slab
	a.words = a.out + slab
	a.request = a.words + wordSlots*8
	a.async = a.request + rpc.MaxRequest
	a.answer = a.async + rpc.MaxRequest
	a.asyncAnswer = a.answer + rpc.MaxAnswer
	a.len = a.answer + rpc.AnswerSlots*rpc.MaxAnswer
	return a
}
