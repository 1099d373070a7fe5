package clover

import (
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
	// Manager connects queue pairs.
	Manager rdmacm.Dialer
	// Meta is the address of the metadata server.
	Meta netip.Addr
	// Params of the connections.
	Params rdmacm.Params
	// MaxValue is the longest value in bytes; it sizes the client's registered memory. 0: 4096.
	MaxValue int
	// Cached is how many locations the client remembers. 0: 1 << 20.
	Cached int
	// Cache, if not nil, is a cache that the client shares with others of its process, all of the
	// same store. nil: it has its own.
	Cache *Cache
	// Reporter, if not nil, reports the client's appends together with those of other clients of its
	// process. nil: the client reports them itself.
	Reporter *Reporter
	// Batch is how many nodes the client asks the metadata server for at a time, at most 16; 0: 16.
	Batch int
	// Spread makes the client append nodes of any memory server, as the published client does.
	// Otherwise the chain of a key stays on one server while that has free nodes, so that a switch can
	// steer every request of the key.
	Spread bool
	// LazyShortcut makes a GET read the shortcut only if the first node that it reads has a
	// successor, together with the successor. This saves a READ for each key that no other client
	// writes. The published client reads it with the first node.
	LazyShortcut bool
	// Records is how many appends the client collects before it reports them, at most 16; it
	// collects for half a lease at most. 0: 1, so that a report leaves as soon as the report before
	// it has been answered. A report has up to 16 appends. The published client waits for 16, so
	// its shortcuts are out of date for longer, and other clients follow longer chains.
	Records int

	// leave removes the client from its Group; nil: the client shares no queue pairs.
	leave func() error
	// device and dialer belong to the Group. The client uses them for requests that need no shared
	// queue pair.
	device verbs.Context
	dialer rdmacm.Dialer
}

const (
	defaultMaxValue = 4096
	defaultCached   = 1 << 20
	// maxPending bounds the appends that are not reported yet. The oldest ones beyond it are
	// dropped: the metadata server finds them when it follows the chain.
	maxPending = 1024
)

func (c Config) withDefaults() Config {
	if c.MaxValue == 0 {
		c.MaxValue = defaultMaxValue
	}
	c.MaxValue = min(c.MaxValue, layout.MaxSlab)
	if c.Cached == 0 {
		c.Cached = defaultCached
	}
	if c.Batch < 1 || c.Batch > rpc.MaxBatch {
		c.Batch = rpc.MaxBatch
	}
	c.Records = min(max(c.Records, 1), rpc.MaxBatch)
	return c
}

// addMeta adds the metadata server to the peers of a fabric, with as many receives for answers.
func (c *Config) addMeta(f *remotemem.Fabric, answers int) (peer int, err error) {
	return f.AddPeer(c.Meta, answers, func(qp verbs.QP, until clock.Time) error {
		_, err := c.Manager.Dial(qp, c.Meta, Service, c.Params, nil, until)
		return err
	})
}

// areas of the registered buffer.
type areas struct {
	in, out, words, request, async, answer, asyncAnswer, len int
}

const wordSlots = 32

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
