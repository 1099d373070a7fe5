package meta

import (
	"cmp"
	"errors"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// memories has the connections to the memory servers, their superblocks, and bulk transfers.
type memories struct {
	cfg    Config
	rt     verbs.Runtime
	fab    *remotemem.Fabric
	format layout.Format
	space  layout.Space
	memory servers
	// answering is what the last call of noteSilence has found: true if the metadata server was
	// connected to at least one server that is not out (see memory).
	answering bool
	// owner is the incarnation number of this metadata server.
	owner uint32
	// written is the greatest incarnation number that this metadata server may have written to a
	// superblock. It can be greater than owner, if taking the next number has failed.
	written uint32
	// self is the owner number under which this metadata server connects to the memory servers.
	// deposed is true if a later incarnation of the metadata server has taken over: a memory server
	// refuses self, or a superblock shows it.
	self    uint32
	deposed bool
	// starting is true until New returns. Until then no client waits, so timeouts may be long.
	starting bool
	// store is the number of the store, which all its superblocks contain.
	store uint32
	// view is the number of the view: each change of the set of servers whose copies count adds 1
	// modulo 2^24.
	view  uint32
	stats rpc.Stats
	walk  walker
	// hand is what the main thread shares with request threads; nil means that there are no request
	// threads.
	hand *handoff
}

// Parts of the registered buffer. Up to `lanes` READs of headers of nodes, or WRITEs of records or
// mirrors of the directory, are in flight at a time. Each has a lane: lane i has a place in the
// buffer from headAt on, one from recordAt on, and the operation walker.ops[i].
const (
	lanes     = 128
	headAt    = 0                    // header and key of a node, for each lane
	recordAt  = headAt + lanes*16    // record of the directory, for each lane
	wordAt    = recordAt + lanes*16  // a shortcut to write, or the result of a compare-and-swap
	bulkAt    = wordAt + lanes*8 + 8 // bulk transfers
	bulkLen   = 64 << 10
	bufferLen = bulkAt + bulkLen
)

// memory is what the metadata server knows of a memory server.
type memory struct {
	// ways are the connections to the server. READs of headers of chains use all of them, because a
	// connection can have only a limited number of READs in flight. Everything else uses the first
	// one.
	ways []way
	// generation is the generation of the server's memory; 0 means that the memory has no
	// superblock of the store.
	generation uint64
	// retryAt is the earliest time of the next attempt to reach a server that did not answer
	// (down).
	retryAt clock.Time
	down    bool
	// blank is true if the server answers, but its memory has no superblock of this store and must
	// be formatted.
	blank bool
	// out is true if the store has copies and the copies on this server do not count. since is the
	// time since which a server that is not out has not answered, while another one has; 0 means
	// that it answers.
	out   bool
	since clock.Time
	// marked is the view in the superblock of a server that is out, if that superblock itself says
	// that the server is out; 0 means that it does not say so, or that there is no superblock.
	marked uint32
}

// servers has the memory servers, by number.
type servers []memory

// way is one connection to a memory server.
type way struct {
	// peer is the number of the connection in memories.fab. region and conn are the memory and the
	// number of the connection, as the memory service has named them.
	peer   int
	region memservice.Region
	conn   uint64
	// boot is the incarnation of the memory service, and so of its memory, to which the last
	// connection was made.
	boot uint64
}

// maxWays is the largest number of connections to each server. With many servers there are fewer.
const maxWays = 2

// target returns the remote address of an offset in the server's memory, over connection i modulo
// the number of connections.
func (m *memory) target(i, off int) remotemem.Target {
	w := &m.ways[i%len(m.ways)]
	return remotemem.Target{Peer: w.peer, Addr: w.region.Addr + uint64(off), RKey: w.region.RKey}
}

// Errors of memory servers. They end only the present operation. Later watchMemory reconnects or
// formats the server.
var (
	errDown = errors.New("memory server does not answer")
	errLost = errors.New("memory server has lost its memory")
)

// downPause is the usual pause between two attempts to reach a memory server that does not answer.
const downPause = 100 * time.Millisecond

// reachMemory adds all memory servers as peers and connects to them.
func (s *memories) reachMemory() error {
	s.memory = make([]memory, len(s.cfg.Servers))
	for i, addr := range s.cfg.Servers {
		m := &s.memory[i]
		m.ways = make([]way, max(1, min(maxWays, remotemem.MaxPeers/len(s.memory))))
		for j := range m.ways {
			w := &m.ways[j]
			peer, err := s.fab.AddPeer(addr, 0, s.dial(w, addr))
			if err != nil {
				return err
			}
			w.peer = peer
		}
		if err := s.await(i, s.rt.Now().Add(2*memoryTimeout)); err != nil {
			return err
		}
	}
	return nil
}

// await connects to server i, which may be starting. It makes several attempts until the deadline,
// because an attempt that has reached the server's former incarnation is never answered.
func (s *memories) await(i int, deadline clock.Time) error {
	for {
		err := s.openWays(i, min(deadline, s.rt.Now().Add(reachTimeout)))
		if err == nil || errors.Is(err, verbs.ErrClosed) || s.rt.Now() >= deadline {
			return err
		}
		s.rt.Sleep(waitPause)
	}
}

func (s *memories) dial(w *way, addr netip.Addr) remotemem.Connect {
	return func(qp verbs.QP, until clock.Time) error {
		claim := memservice.Claim{Owner: s.self, Replaces: w.conn}
		m, err := memservice.DialOwned(s.cfg.Manager, qp, addr, s.cfg.Params, claim, until)
		if err == nil {
			w.region, w.conn, w.boot = m.Region, m.Conn, m.Boot
		}
		s.deposed = s.deposed || errors.Is(err, memservice.ErrFenced)
		return err
	}
}

func (s *memories) connected(i int) bool {
	for _, w := range s.memory[i].ways {
		if !s.fab.Connected(w.peer) {
			return false
		}
	}
	return true
}

func (s *memories) breakWays(i int) error {
	for _, w := range s.memory[i].ways {
		if err := s.fab.Break(w.peer); err != nil {
			return err
		}
	}
	return nil
}

// openWays connects to server i. If one of its connections is missing, openWays makes all of them
// again, so that all belong to the same incarnation of the server.
func (s *memories) openWays(i int, deadline clock.Time) error {
	if s.connected(i) {
		return nil
	}
	if err := s.breakWays(i); err != nil {
		return err
	}
	for _, w := range s.memory[i].ways {
		if err := s.fab.Open(w.peer, deadline); err != nil {
			return err
		}
	}
	return nil
}

// reach makes sure that server i is connected and that its memory is the store's.
func (s *memories) reach(i int) error {
	m := &s.memory[i]
	switch {
	case s.copied() && (m.out || m.blank):
		return errDown
	case m.blank:
		return errLost
	}
	if s.connected(i) {
		return nil
	}
	now := s.rt.Now()
	if m.down && now < m.retryAt {
		return errDown
	}
	m.down = true
	err := s.openWays(i, now.Add(s.reachTime()))
	m.retryAt = s.rt.Now().Add(s.retryPause())
	if err != nil {
		return errors.Join(errDown, err)
	}
	switch err := s.verify(i); {
	case errors.Is(err, errLost) && s.copied():
		m.blank = true
		return errDown
	case errors.Is(err, errLost):
		m.blank = true
		return err
	case err != nil:
		return errors.Join(errDown, err)
	}
	m.down = false
	return nil
}

// watchMemory reconnects servers that did not answer, and calls lose for servers that have lost
// their memory. In a store with copies it leaves the work to members.watch.
func (s *Server) watchMemory(now clock.Time) {
	if s.mem.copied() {
		s.members.watch(now)
		return
	}
	probe := s.members.probeDue
	s.members.probeDue = false
	for i := range s.mem.memory {
		m := &s.mem.memory[i]
		if probe && !m.blank && s.mem.connected(i) {
			_ = s.mem.probe(i) // if the READ fails, the connection ends
		}
		if !m.blank && !s.mem.connected(i) && now >= m.retryAt {
			_ = s.mem.reach(i) // the outcome is in s.mem.memory[i]
		}
		if m.blank {
			_ = s.lose(i) // a failure is retried at the next call
		}
	}
}

// deadline returns the deadline of an operation on a memory server that begins now.
func (s *memories) deadline() clock.Time {
	if s.copied() && !s.starting { // a short timeout, because clients wait and their leases end
		return s.rt.Now().Add(min(memoryTimeout, max(s.cfg.Lease/4, 5*keepEvery)))
	}
	return s.rt.Now().Add(memoryTimeout)
}

// reachTime returns the longest time of one attempt to connect to a server.
func (s *memories) reachTime() time.Duration {
	if s.copied() {
		return min(reachTimeout, max(s.cfg.Lease/8, keepEvery))
	}
	return reachTimeout
}

// retryPause returns the pause between two attempts to reach a server that does not answer. In
// a store with copies of nodes it is short compared with the lease, so that the metadata server
// makes several attempts before it decides that the copies on that server no longer count.
func (s *memories) retryPause() time.Duration {
	if s.copied() {
		return min(downPause, max(s.cfg.Lease/16, keepEvery))
	}
	return downPause
}

// superblock reads the superblock of server i. It returns layout.ErrSuperblock if there is none, or
// if it is that of another server. It returns errDeposed if another metadata server has made
// another store since this one took over, or has taken over this store: then the superblock has the
// greater number of that metadata server. The check is needed because a memory service that was
// restarted has forgotten which numbers were fenced, and admits this metadata server.
func (s *memories) superblock(i int) (super layout.Superblock, err error) {
	o := &s.walk.bulk
	s.fab.Read(o, s.memory[i].target(0, 0), bulkAt, layout.SuperblockLen)
	if err := s.fab.Do(s.deadline(), o); err != nil {
		return super, err
	}
	var b [layout.SuperblockLen]byte
	if err := s.fab.MR().ReadAt(b[:], bulkAt); err != nil {
		return super, err
	}
	if err := super.Parse(b[:]); err != nil {
		return super, err
	}
	if super.Server != i {
		return super, layout.ErrSuperblock
	}
	if s.self != 0 && (super.Store != s.store || super.Owner > max(s.owner, s.written)) {
		s.deposed = true
		return super, errDeposed
	}
	return super, nil
}

// probe reads the superblock of server i. Meanwhile the request threads may use the tables (lend).
func (s *memories) probe(i int) error {
	s.lend()
	defer s.regain()
	_, err := s.superblock(i)
	return err
}

// doLent executes an operation on a memory server. Meanwhile the request threads may use the tables
// (lend).
func (s *memories) doLent(o *remotemem.Op) error {
	deadline := s.deadline()
	s.lend()
	defer s.regain()
	return s.fab.Do(deadline, o)
}

// verify reads the superblock of server i again after the metadata server has connected to it. It
// returns errLost if the memory is not the same as before, because the memory server has crashed
// since.
func (s *memories) verify(i int) error {
	super, err := s.superblock(i)
	if errors.Is(err, layout.ErrSuperblock) || err == nil && super.Generation != s.memory[i].generation {
		return errLost
	}
	return err
}

// readBulk reads n bytes of server i at offset `off`. The caller owns the result.
func (s *memories) readBulk(i, off, n int) ([]byte, error) {
	b := make([]byte, n)
	for p := (pieces{left: n}); p.left > 0; {
		if err := s.transfer(i, &p, func(o *remotemem.Op) error {
			s.fab.Read(o, s.memory[i].target(0, off+p.at), bulkAt, p.n)
			return nil
		}); err != nil {
			return nil, err
		}
		if err := s.fab.MR().ReadAt(b[p.at:p.at+p.n], bulkAt); err != nil {
			return nil, err
		}
		p.next()
	}
	return b, nil
}

func (s *memories) eraseShortcuts(i int) error {
	if err := s.reach(i); err != nil {
		return err
	}
	first, _ := s.space.Shortcut(i)
	return s.writeBulk(i, first.Offset, make([]byte, s.space.Shortcuts*layout.ShortcutLen))
}

func (s *memories) writeBulk(i, off int, b []byte) error {
	for p := (pieces{left: len(b)}); p.left > 0; p.next() {
		if err := s.transfer(i, &p, func(o *remotemem.Op) error {
			s.fab.Write(o, s.memory[i].target(0, off+p.at), bulkAt, p.n)
			return s.fab.MR().WriteAt(b[p.at:p.at+p.n], bulkAt)
		}); err != nil {
			return err
		}
	}
	return nil
}

// pieces divides a bulk transfer. The present piece has `n` bytes and begins at offset `at`. The
// transfer still has to move `left` bytes, the present piece included. No piece is longer than
// `most`.
type pieces struct{ at, n, left, most int }

// smallestPiece is the length in bytes below which transfer shortens no piece.
const smallestPiece = 512

func (p *pieces) begin() {
	p.most = cmp.Or(p.most, bulkLen)
	p.n = min(p.left, p.most)
}

// next goes on to the next piece, after the present one was transferred.
func (p *pieces) next() { p.at, p.left = p.at+p.n, p.left-p.n }

// transfer executes the READ or WRITE of a piece, which prepare prepares. When the connection
// fails, transfer connects again and tries a shorter piece, as long as an operation on a memory
// server may take. If it did not, no server could be filled where connections often fail, because
// all of its memory would have to be written over one connection. transfer does not go on in the
// memory of another incarnation of the server.
func (s *memories) transfer(i int, p *pieces, prepare func(o *remotemem.Op) error) error {
	m := &s.memory[i]
	boot, deadline := m.ways[0].boot, s.deadline()
	for p.begin(); ; p.begin() {
		o := &s.walk.bulk
		if err := prepare(o); err != nil {
			return err
		}
		err := s.fab.Do(deadline, o)
		if err == nil || errors.Is(err, verbs.ErrClosed) || s.deposed || s.rt.Now() >= deadline {
			return err
		}
		p.most = max(smallestPiece, p.n/4)
		if again := s.await(i, deadline); again != nil {
			return errors.Join(err, again)
		}
		if m.ways[0].boot != boot { // another incarnation of the server: the next call of reach checks its memory
			return errors.Join(errDown, err, s.breakWays(i))
		}
	}
}
