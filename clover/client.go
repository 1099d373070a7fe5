package clover

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/qpshare"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	calls "github.com/rdmalab/rdmalab/store/rpc"
)

// Client is one client of the store. One thread uses it. See the package comment.
//
// It consists of layers, and each calls only those below it. From the bottom: session (connections,
// calls, lease), finder (cache and chains), appender (new nodes, links, reports), and Client itself
// (the operations of kv.Store).
type Client struct {
	session  *session
	finder   *finder
	appender *appender
}

var _ kv.Timed = (*Client)(nil)

// server is what the client knows of one memory server.
type server struct {
	// peer is the server's number in session.fab. generation is the generation of the server's
	// memory, from the metadata server; 0 means that the copies on this server do not count.
	peer       int
	region     memservice.Region
	generation uint64
	// conn is the number that the server gave to the client's last connection; 0 means that there
	// was none to the memory of this generation. owner is the owner number under which the client
	// made or joined that connection.
	conn  uint64
	owner uint32
	// joined are the owner numbers that the client may have on a shared connection: that of the
	// last answered Join, and those of later Joins whose answers were lost.
	joined []uint32
	// refused is how many joins in a row the server has refused because it had ended the
	// connection.
	refused int
	// checked is true if the client has read the superblock over the present connection, and the
	// superblock belongs to the store.
	checked bool
	// lost is true if the server's memory is not the memory that the metadata server has formatted.
	lost bool
}

func (s *server) target(off int) remotemem.Target {
	return remotemem.Target{Peer: s.peer, Addr: s.region.Addr + uint64(off), RKey: s.region.RKey}
}

// Open makes a client and introduces it to the metadata server. The client connects to a memory
// server when it first needs that server.
func Open(cfg Config, deadline clock.Time) (*Client, error) {
	s, err := openSession(cfg.withDefaults(), deadline)
	if err != nil {
		return nil, err
	}
	return (&finder{session: s, cache: cmp.Or(s.cfg.Cache, s.own)}).client(), nil
}

// client makes the layers above the finder.
func (c *finder) client() *Client {
	return &Client{session: c.session, finder: c, appender: &appender{session: c.session, finder: c}}
}

// openSession connects to the metadata server and introduces the client.
func openSession(cfg Config, deadline clock.Time) (_ *session, err error) {
	s := &session{cfg: cfg, rt: kv.NewTimeline(cfg.Context.Runtime()), at: cfg.areas()}
	if cfg.Cache == nil {
		s.own = NewCache(cfg.Cached)
	}
	if cfg.Reporter != nil {
		s.gc.gate = s.rt.NewGate()
	}
	s.slab = make([]byte, s.at.out)
	s.fab, err = remotemem.New(remotemem.Config{
		Context: cfg.Context, Buffer: s.at.len, Access: verbs.RemoteWrite,
	})
	if err != nil {
		return nil, err
	}
	defer kv.CloseAfter(&err, s.fab)
	s.fab.OnNotify(s.notified)
	if s.meta, err = cfg.addMeta(s.fab, rpc.AnswerSlots); err != nil {
		return nil, err
	}
	s.call.Caller = calls.Caller{Fabric: s.fab, Peer: s.meta, Name: cfg.Meta.String(), Request: s.at.request, Answer: s.at.answer}
	return s, s.hello(deadline)
}

// addServers adds the memory servers as peers. If they are known already, it updates their
// generations, and ends the connection to each server whose generation has changed.
func (c *session) addServers(list []rpc.Server) error {
	if c.servers == nil {
		c.servers = make([]server, len(list))
		for i := range list {
			peer, err := c.fab.AddPeer(list[i].Addr, 0, c.dialMemory(i, list[i].Addr))
			if err != nil {
				return err
			}
			c.servers[i].peer = peer
			c.addrs = append(c.addrs, list[i].Addr)
		}
	}
	if len(list) != len(c.servers) {
		return fmt.Errorf("the store has %d memory servers now, it had %d: open it again", len(list), len(c.servers))
	}
	for i := range list {
		s := &c.servers[i]
		if s.generation != list[i].Generation {
			s.generation, s.lost, s.conn = list[i].Generation, false, 0
			if err := c.fab.Break(s.peer); err != nil {
				return err
			}
		}
	}
	return nil
}

// dialMemory returns the function that connects to memory server i, under the owner number that the
// metadata server has given to the client. Before the metadata server gives a node of this client
// to another client, it makes the memory servers end all connections of this owner. Before the
// memory server accepts the new connection, it ends the client's former one, which Claim.Replaces
// names. From then on the memory server executes no request of the former connection.
//
// After the connection is made, the method reach reads the superblock before the client reads
// anything else there: the client must not mistake the memory of a restarted server for the
// store's.
func (c *session) dialMemory(i int, addr netip.Addr) remotemem.Connect {
	return func(qp verbs.QP, until clock.Time) (err error) {
		s := &c.servers[i]
		claim := memservice.Claim{Owner: c.lease.owner, Replaces: s.conn}
		var m memservice.Memory
		if c.shares() {
			m, err = memservice.DialShared(c.cfg.Manager, qp, addr, c.cfg.Params, until)
			if err == nil {
				err = c.join(i, m.Conn, until)
			}
			err = c.joined(i, qp, err)
		} else {
			m, err = memservice.DialOwned(c.cfg.Manager, qp, addr, c.cfg.Params, claim, until)
		}
		if err == nil {
			s.region, s.conn, s.owner, s.checked = m.Region, m.Conn, claim.Owner, false
		}
		return c.fenced(err)
	}
}

// mostRefused is how many joins in a row the memory server may refuse because it has ended the
// connection. After that the client ends the connection for all clients of the group. Usually a
// request of some client in the group fails earlier, and that client ends the connection. But while
// no client has a request in flight, no NIC notices that the server has ended it.
const mostRefused = 64

// joined is called with the result err of a join over queue pair qp. It counts the joins that the
// memory server has refused in a row, and ends the queue pair after mostRefused of them.
func (c *session) joined(i int, qp verbs.QP, err error) error {
	s := &c.servers[i]
	if !errors.Is(err, memservice.ErrGone) {
		s.refused = 0
		return err
	}
	if s.refused++; s.refused < mostRefused {
		return err
	}
	s.refused = 0
	return errors.Join(err, qpshare.End(qp))
}

// mostJoined is how many of its owner numbers the client remembers for a shared connection. It gets
// another number when its lease has ended. When the client joins the connection again, one request
// removes all remembered numbers from the connection. With a request for each number, a join over a
// lossy link could take longer than a lease. If a number that is not remembered is fenced, the
// memory server ends the connection, and the group connects again.
const mostJoined = memservice.MostFormer

// join joins a shared connection under the client's owner number, and removes the client's earlier
// numbers from it. Otherwise the fence of an earlier number, which may be in flight, would end the
// connection for all clients of the group. The removal is safe, because no request under an earlier
// number is in flight on the connection: the client has received all answers, or has ended the
// connection.
func (c *session) join(i int, conn uint64, until clock.Time) error {
	s := &c.servers[i]
	claim := memservice.Claim{Replaces: s.conn, Owner: c.lease.owner}
	isOwn := func(id uint32) bool { return id == claim.Owner }
	claim.Former = slices.DeleteFunc(slices.Clone(s.joined), isOwn)
	s.joined = append(slices.Clone(claim.Former[max(0, len(claim.Former)+1-mostJoined):]), claim.Owner)
	if err := memservice.Join(c.cfg.device, c.cfg.dialer, c.addrs[i], conn, claim, until); err != nil {
		return err
	}
	s.joined = []uint32{claim.Owner}
	return nil
}

// fenced returns errLease in place of err if err says that the memory server refuses the client's
// owner number because it was fenced. Then the lease has ended, and the next hello asks for another
// number.
func (c *session) fenced(err error) error {
	if !errors.Is(err, memservice.ErrFenced) {
		return err
	}
	c.lease.End()
	c.lease.owner = 0
	return errLease
}

// shares reports whether the client shares its queue pairs to the memory servers with other clients
// (see Group).
func (c *session) shares() bool { return c.cfg.leave != nil }

// claim makes sure that the connection to memory server i, if there is one, has the client's
// present owner number: it joins a shared connection again, or breaks the client's own one so that
// reach makes a new one.
func (c *session) claim(i int, deadline clock.Time) error {
	s := &c.servers[i]
	if s.owner == c.lease.owner || !c.fab.Connected(s.peer) {
		return nil
	}
	if !c.shares() {
		return c.fab.Break(s.peer)
	}
	err := c.join(i, s.conn, deadline)
	if err == nil {
		s.owner = c.lease.owner
		return nil
	}
	return errors.Join(c.fenced(err), c.fab.Break(s.peer))
}

// quiet reports whether no request on an earlier connection can be in flight. That is so if the
// client is connected to each memory server to which it was ever connected: a server ends the
// client's former connection before it accepts a new one.
func (c *session) quiet() bool {
	for i := range c.servers {
		if s := &c.servers[i]; s.conn != 0 && !c.fab.Connected(s.peer) {
			return false
		}
	}
	return true
}

// reach connects to memory server i if necessary, and checks the superblock if that has not
// succeeded on this connection yet.
func (c *session) reach(i int, deadline clock.Time) error {
	s := &c.servers[i]
	if s.lost || s.generation == 0 {
		return errMemory
	}
	if err := c.claim(i, deadline); err != nil {
		return err
	}
	if c.fab.Connected(s.peer) && s.checked {
		return nil
	}
	if c.copied() {
		deadline = min(deadline, c.rt.Now().Add(reachPatience))
	}
	if err := c.fab.Open(s.peer, deadline); err != nil {
		return err
	}
	if s.region.Len < c.space.RegionLen() {
		return fmt.Errorf("%w: the region of memory server %d has %d bytes, but the store needs %d; run `rdmalab clover start --fresh`",
			errMemory, i, s.region.Len, c.space.RegionLen())
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
	s.checked = true
	return nil
}

// do posts requests to memory servers and waits until all are complete, which takes one round trip.
// If the lease has ended, perhaps while the client was connecting, do returns errLease and posts
// nothing: the nodes that the requests name may belong to another client.
//
// A request may still leave or arrive after the lease. Therefore the memory servers end the
// connection before the nodes are given to another client. On a shared queue pair a request may
// wait for requests of other clients. So a request there must complete before the lease ends. If it
// does not, this client ends the connection.
//
// do does not connect again after a failure, because the method reach must do that: it also reads
// the superblock.
func (c *session) do(deadline clock.Time, ops ...*remotemem.Op) error {
	if !c.lease.Valid(c.rt.Now()) {
		return errLease
	}
	if c.shares() {
		deadline = min(deadline, c.lease.Until)
	}
	for _, o := range ops {
		if !c.fab.Connected(o.Peer) {
			return &remotemem.OpError{Op: o.WR.Op, Peer: "memory server", Status: verbs.WRFlushErr}
		}
	}
	c.cost.RTTs++
	defer c.rt.Leave(c.rt.Enter(kv.PhaseTrip))
	return c.fab.Do(deadline, ops...)
}

// word returns word i of the area `words` of the client's buffer. A READ or a compare-and-swap has
// written it.
func (c *session) word(i int) (layout.Word, error) {
	v, err := c.fab.MR().Load64(c.at.words + 8*i)
	return layout.Word(v), err
}

// Stats returns the counters of the metadata server.
func (c *Client) Stats(deadline clock.Time) (rpc.Stats, error) {
	a, err := c.session.ask(&rpc.Request{Op: rpc.OpStat}, deadline)
	if err != nil {
		return rpc.Stats{}, err
	}
	if a.Stats == nil {
		return rpc.Stats{}, rpc.ErrMessage
	}
	return *a.Stats, nil
}

// Exchange asks the metadata server for a free node and gives it back, in two calls. `rdmalab
// clover calls` measures the metadata server with it. Exchange returns how many of the two calls
// were answered. If the second call gets no answer, that is no error. Exchange does not repeat it,
// because the server may have executed it. If not, the server takes the node back when the client's
// lease ends.
func (c *Client) Exchange(deadline clock.Time) (calls int, err error) {
	if err := c.appender.begin(deadline); err != nil {
		return 0, err
	}
	class, _ := layout.ClassOf(kv.MinValue + c.session.format.Overhead())
	a, err := c.session.ask(&rpc.Request{Op: rpc.OpAlloc, Class: class, N: 1}, deadline)
	if err != nil {
		return 0, err
	}
	if a.Status != rpc.OK {
		return 0, fmt.Errorf("a node of %v: %v", class, a.Status)
	}
	c.session.spare[class] = append(c.session.spare[class], a.Locations[:a.N]...)
	return 1 + min(1, c.session.giveBack(deadline)), nil
}

func (c *Client) Last() kv.Cost { return c.session.cost }

func (c *Client) Timeline() *kv.Timeline { return c.session.rt }

// Placed returns the number of the memory server that has the node of the last write. The result is
// valid only after a write that has succeeded.
func (c *Client) Placed() int {
	p, _ := c.session.space.Place(c.appender.placed.Handle)
	return p.Server
}

// Keeps returns an upper limit for the number of nodes that the metadata server counts as held by
// the client when all its appends are reported. These are spare nodes, and nodes that the client
// must not use any more, because a request with these nodes, or the answer to it, may have been
// lost.
func (c *Client) Keeps() int {
	n := c.session.lease.taken
	for _, spare := range c.session.spare {
		n += len(spare)
	}
	return n
}

// Close reports the remaining appends, gives back spare nodes, and ends the connections.
func (c *Client) Close() error {
	if c.session.ended {
		return nil
	}
	c.session.ended = true
	deadline := c.session.rt.Now().Add(closeTimeout)
	c.appender.farewell(deadline)
	err := c.session.fab.Close()
	if c.session.cfg.leave != nil {
		err = errors.Join(err, c.session.cfg.leave())
	}
	return err
}
