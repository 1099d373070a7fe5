package clover

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fabric"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Client is one client of the store. See the package comment.
type Client struct {
	cfg Config
	rt  verbs.Runtime
	fab *fabric.Fabric
	at  areas
	// slab is scratch memory of the length of the largest slab.
	slab []byte

	meta    int
	servers []server
	space   layout.Space
	format  layout.Format

	call  caller
	lease lease
	cache cache
	spare [layout.Classes][]layout.Location
	gc    reporter
	cost  kv.Cost
	ops   [3]fabric.Op
	ended bool
}

var _ kv.Store = (*Client)(nil)

// server is a memory server as the client sees it.
type server struct {
	peer       int
	region     perf.Region
	generation uint64
	// lost says that its memory is not the one that the metadata server formatted.
	lost bool
}

// target is the server's memory from an offset on.
func (s *server) target(off int) fabric.Target {
	return fabric.Target{Peer: s.peer, Addr: s.region.Addr + uint64(off), RKey: s.region.RKey}
}

// Open introduces a client to the metadata server. Connections to the memory servers are made when they are needed.
func Open(cfg Config, deadline clock.Time) (_ *Client, err error) {
	cfg = cfg.withDefaults()
	c := &Client{cfg: cfg, rt: cfg.Context.Runtime(), at: cfg.areas(), cache: newCache(cfg.Cached)}
	c.slab = make([]byte, c.at.out)
	c.fab, err = fabric.New(fabric.Config{
		Context: cfg.Context, Buffer: c.at.len, Access: verbs.RemoteWrite,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.fab.Close())
		}
	}()
	c.fab.OnNotify(c.notified)
	c.meta, err = c.fab.AddPeer(cfg.Meta, rpc.AnswerSlots, func(qp verbs.QP, until clock.Time) error {
		_, err := cfg.Manager.Dial(qp, cfg.Meta, Service, cfg.Params, nil, until)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, c.hello(deadline)
}

// addServers makes the peers of the memory servers, or brings their generations up to date.
func (c *Client) addServers(list []rpc.Server) error {
	if c.servers == nil {
		c.servers = make([]server, len(list))
		for i := range list {
			peer, err := c.fab.AddPeer(list[i].Addr, 0, c.dialMemory(i, list[i].Addr))
			if err != nil {
				return err
			}
			c.servers[i].peer = peer
		}
	}
	if len(list) != len(c.servers) {
		return fmt.Errorf("the store has %d memory servers now, it had %d: open it again", len(list), len(c.servers))
	}
	for i := range list {
		s := &c.servers[i]
		if s.generation != list[i].Generation {
			s.generation, s.lost = list[i].Generation, false
			if err := c.fab.Break(s.peer); err != nil {
				return err
			}
		}
	}
	return nil
}

// dialMemory connects to a memory server, and reads its superblock before anything else is read there: memory of a server that
// was restarted must not be taken for the store's.
func (c *Client) dialMemory(i int, addr netip.Addr) fabric.Connect {
	return func(qp verbs.QP, until clock.Time) error {
		region, err := perf.DialMemory(c.cfg.Manager, qp, addr, c.cfg.Params, until)
		if err == nil {
			c.servers[i].region = region
		}
		return err
	}
}

// reach connects to a memory server if that is not done, and checks its memory.
func (c *Client) reach(i int, deadline clock.Time) error {
	s := &c.servers[i]
	if s.lost {
		return errMemory
	}
	if c.fab.Connected(s.peer) {
		return nil
	}
	if err := c.fab.Open(s.peer, deadline); err != nil {
		return err
	}
	if s.region.Len < c.space.RegionLen() {
		return fmt.Errorf("%w: its region has %d bytes, the store needs %d", errMemory, s.region.Len, c.space.RegionLen())
	}
	o := &c.ops[2]
	c.fab.Read(o, s.target(0), c.at.in, layout.SuperblockLen)
	if err := c.do(deadline, o); err != nil {
		return err
	}
	var b [layout.SuperblockLen]byte
	if err := c.fab.MR().ReadAt(b[:], c.at.in); err != nil {
		return err
	}
	var super layout.Superblock
	if err := super.Parse(b[:]); err != nil || super.Generation != s.generation || super.Server != i {
		s.lost = true
		return errMemory
	}
	return nil
}

// do is one round trip of the data path. It does not begin when the lease has ended, which may be while a server was being reached: what
// the request names may be somebody else's by then.
//
// On a queue pair of its own a request leaves at once, or not long after: the metadata server's grace is for that. On a shared one it
// may wait for those of others, and must not leave later either.
func (c *Client) do(deadline clock.Time, ops ...*fabric.Op) error {
	if c.rt.Now() >= c.lease.until {
		return errLease
	}
	if c.cfg.leave != nil {
		deadline = min(deadline, c.lease.until)
	}
	c.cost.RTTs++
	return c.fab.Do(deadline, ops...)
}

// word reads back word i of the buffer.
func (c *Client) word(i int) (layout.Word, error) {
	v, err := c.fab.MR().Load64(c.at.words + 8*i)
	return layout.Word(v), err
}

// Stats asks the metadata server for its counters.
func (c *Client) Stats(deadline clock.Time) (rpc.Stats, error) {
	a, err := c.ask(&rpc.Request{Op: rpc.OpStat}, deadline)
	if err != nil {
		return rpc.Stats{}, err
	}
	if a.Stats == nil {
		return rpc.Stats{}, rpc.ErrMessage
	}
	return *a.Stats, nil
}

// Last is what the last operation cost.
func (c *Client) Last() kv.Cost { return c.cost }

// Format is that of the store's nodes.
func (c *Client) Format() layout.Format { return c.format }

// Close reports what was not reported yet, gives back unused nodes, and ends the connections.
func (c *Client) Close() error {
	if c.ended {
		return nil
	}
	c.ended = true
	deadline := c.rt.Now().Add(closePatience)
	c.farewell(deadline)
	err := c.fab.Close()
	if c.cfg.leave != nil {
		err = errors.Join(err, c.cfg.leave())
	}
	return err
}
