package meta

import (
	"errors"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fabric"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Times of the loop.
const (
	// keepEvery is how often leases, epochs and lost servers are looked after.
	keepEvery = 10 * time.Millisecond
	// acceptPatience bounds the hand-shake with a new client, acceptPause is between two looks whether the last one has ended.
	acceptPatience = time.Second
	acceptPause    = time.Millisecond
	// memoryPatience bounds an operation on a memory server, reachPatience the attempt to connect to one.
	memoryPatience = time.Second
	reachPatience  = 200 * time.Millisecond
)

// Server is a metadata server. Serve runs it; all else is for other threads, or before.
type Server struct {
	cfg    Config
	rt     verbs.Runtime
	fab    *fabric.Fabric
	format layout.Format
	space  layout.Space

	front   front
	memory  []memory
	keys    map[uint64]*entry
	slots   []uint32 // free ones
	nodes   nodes
	clients map[uint32]*client
	nextID  uint32
	// owner is the number of this life of the server.
	owner uint32
	// store is the number that all superblocks have in common.
	store    uint32
	epoch    uint32
	keepAt   clock.Time
	sweepDue bool
	// probeDue says that all memory servers are to be asked whether they are what they were: a connection that nobody uses does not
	// tell that its other end has gone.
	probeDue bool
	sweepAt  clock.Time
	// orphansAt is when nodes that clients of an earlier life of this server, or of lost memory, may have are free; Never: there
	// are none. void says that some of them are of lost memory.
	orphansAt clock.Time
	void      bool
	listener  rdmacm.Listener
	stats     rpc.Stats
	walk      walker
}

// New connects to the memory servers, finds the store that is in their memory or makes one, and listens. Serve must follow.
func New(cfg Config) (_ *Server, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, rt: cfg.Context.Runtime(), format: cfg.Format, keys: make(map[uint64]*entry), clients: make(map[uint32]*client),
		epoch: 1, orphansAt: clock.Never,
	}
	s.nodes.held = make(map[layout.Handle]held)
	s.walk.successors = make(map[layout.Location]layout.Location)
	s.fab, err = fabric.New(fabric.Config{Context: cfg.Context, Buffer: bufferLen})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.front.close(), s.fab.Close())
		}
	}()
	if err := s.reachMemory(); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	if err := s.front.open(cfg.Context); err != nil {
		return nil, err
	}
	s.listener, err = cfg.Manager.Listen(cfg.Service)
	return s, err
}

// Close ends Serve. It may be called by any thread.
func (s *Server) Close() error { return s.listener.Close() }

// Serve answers clients until Close or until the device is closed; then it returns nil.
func (s *Server) Serve() error {
	s.startAcceptors()
	err := s.serve()
	s.stopAcceptors()
	if errors.Is(err, verbs.ErrClosed) {
		err = nil
	}
	return errors.Join(err, s.front.close(), s.fab.Close())
}

func (s *Server) serve() error {
	for {
		left := s.front.left()
		n, err := s.front.poll()
		if err != nil {
			return err
		}
		for i := range n {
			s.take(&s.front.wcs[i])
		}
		if n < len(s.front.wcs) {
			s.front.bury(left)
		}
		s.advance()
		now := s.rt.Now()
		if s.front.over() {
			return verbs.ErrClosed
		}
		if now >= s.keepAt {
			s.keepAt = now.Add(keepEvery)
			s.keep(now)
		}
		if n > 0 {
			continue
		}
		err = s.front.cq.Wait(s.keepAt)
		if err != nil && !errors.Is(err, verbs.ErrTimeout) {
			return err
		}
	}
}

// Snapshot returns the counters. It belongs to the thread of Serve, or to nobody after it.
func (s *Server) Snapshot() rpc.Stats {
	st := s.stats
	st.Epoch, st.Clients, st.Keys, st.Slots = uint64(s.epoch), uint64(len(s.clients)), uint64(len(s.keys)), uint64(s.space.Slots())
	st.Nodes = uint64(s.space.Entries.Total() * s.space.Servers)
	for _, e := range s.keys {
		if e.lost {
			st.LostKeys++
		}
	}
	for i := range s.nodes.free {
		st.Free += uint64(s.nodes.free[i].len())
	}
	st.Held, st.Worn = uint64(len(s.nodes.held)), uint64(len(s.nodes.worn))
	st.Linked = st.Nodes - st.Free - st.Held - st.Worn
	return st
}
