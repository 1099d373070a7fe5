package meta

import (
	"errors"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fabric"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Parts of the registered buffer.
const (
	lanes     = 128
	headAt    = 0                    // header and key of a node, of each lane
	recordAt  = headAt + lanes*16    // record of the directory, of each lane
	wordAt    = recordAt + lanes*16  // shortcut of each lane
	bulkAt    = wordAt + lanes*8 + 8 // whole pieces of memory
	bulkLen   = 64 << 10
	bufferLen = bulkAt + bulkLen
)

// memory is a memory server.
type memory struct {
	// ways are the connections to it. The first one is for all but headers of chains: a connection bounds the READs that
	// are under way.
	ways       []way
	generation uint64
	// retryAt is when a server that did not answer is asked again.
	retryAt clock.Time
	down    bool
	// blank says that its memory is not the store's: it has to be formatted.
	blank bool
}

// way is one connection to a memory server.
type way struct {
	peer   int
	region perf.Region
}

// maxWays is how many connections there are to each server, if they are few.
const maxWays = 2

// target is the server's memory from an offset on, by one of the connections.
func (m *memory) target(i, off int) fabric.Target {
	w := &m.ways[i%len(m.ways)]
	return fabric.Target{Peer: w.peer, Addr: w.region.Addr + uint64(off), RKey: w.region.RKey}
}

// Errors of memory servers. They end one operation; the server looks after the rest.
var (
	errDown = errors.New("memory server does not answer")
	errLost = errors.New("memory server has lost its memory")
)

const downPause = 100 * time.Millisecond

// reachMemory makes the peers and connects to all of them.
func (s *Server) reachMemory() error {
	s.memory = make([]memory, len(s.cfg.Servers))
	for i, addr := range s.cfg.Servers {
		m := &s.memory[i]
		m.ways = make([]way, max(1, min(maxWays, fabric.MaxPeers/len(s.memory))))
		for j := range m.ways {
			w := &m.ways[j]
			peer, err := s.fab.AddPeer(addr, 0, s.dial(w, addr))
			if err != nil {
				return err
			}
			w.peer = peer
		}
		if err := s.openWays(i, s.rt.Now().Add(2*memoryPatience)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) dial(w *way, addr netip.Addr) fabric.Connect {
	return func(qp verbs.QP, until clock.Time) error {
		region, err := perf.DialMemory(s.cfg.Manager, qp, addr, s.cfg.Params, until)
		if err == nil {
			w.region = region
		}
		return err
	}
}

// connected reports whether all connections to a server are there.
func (s *Server) connected(i int) bool {
	for _, w := range s.memory[i].ways {
		if !s.fab.Connected(w.peer) {
			return false
		}
	}
	return true
}

// openWays makes all connections to a server that are not there. If one has failed, all are made anew, so that they lead to the
// same life of it.
func (s *Server) openWays(i int, deadline clock.Time) error {
	if s.connected(i) {
		return nil
	}
	for _, w := range s.memory[i].ways {
		if err := s.fab.Break(w.peer); err != nil {
			return err
		}
	}
	for _, w := range s.memory[i].ways {
		if err := s.fab.Open(w.peer, deadline); err != nil {
			return err
		}
	}
	return nil
}

// reach makes sure that a server is connected and that its memory is the store's.
func (s *Server) reach(i int) error {
	m := &s.memory[i]
	if m.blank {
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
	err := s.openWays(i, now.Add(reachPatience))
	m.retryAt = s.rt.Now().Add(downPause)
	if err != nil {
		return errors.Join(errDown, err)
	}
	super, err := s.superblock(i)
	switch {
	case errors.Is(err, layout.ErrSuperblock), err == nil && super.Generation != m.generation:
		m.blank = true
		return errLost
	case err != nil:
		return errors.Join(errDown, err)
	}
	m.down = false
	return nil
}

// watchMemory looks after servers that did not answer, and formats the memory of those that have lost it.
func (s *Server) watchMemory(now clock.Time) {
	probe := s.probeDue
	s.probeDue = false
	for i := range s.memory {
		m := &s.memory[i]
		if probe && !m.blank && s.connected(i) {
			_, _ = s.superblock(i) // if it does not answer, it is not connected any more
		}
		if !m.blank && !s.connected(i) && now >= m.retryAt {
			_ = s.reach(i) // the state is kept there
		}
		if m.blank {
			_ = s.lose(i) // it is tried again
		}
	}
}

// deadline of one operation on memory.
func (s *Server) deadline() clock.Time { return s.rt.Now().Add(memoryPatience) }

// superblock reads that of a server.
func (s *Server) superblock(i int) (super layout.Superblock, err error) {
	b, err := s.readBulk(i, 0, layout.SuperblockLen)
	if err != nil {
		return super, err
	}
	if err := super.Parse(b); err != nil {
		return super, err
	}
	if super.Server != i {
		return super, layout.ErrSuperblock
	}
	return super, nil
}

// readBulk reads up to bulkLen bytes of a region. The result is the caller's.
func (s *Server) readBulk(i, off, n int) ([]byte, error) {
	m := &s.memory[i]
	o := &s.walk.bulk
	s.fab.Read(o, m.target(0, off), bulkAt, n)
	if err := s.fab.Do(s.deadline(), o); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	return b, s.fab.MR().ReadAt(b, bulkAt)
}

// writeBulk writes b to a region.
func (s *Server) writeBulk(i, off int, b []byte) error {
	m := &s.memory[i]
	for len(b) > 0 {
		n := min(len(b), bulkLen)
		if err := s.fab.MR().WriteAt(b[:n], bulkAt); err != nil {
			return err
		}
		o := &s.walk.bulk
		s.fab.Write(o, m.target(0, off), bulkAt, n)
		if err := s.fab.Do(s.deadline(), o); err != nil {
			return err
		}
		off, b = off+n, b[n:]
	}
	return nil
}
