package nictable

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/memcached"
)

var _ memcached.Table = (*Server)(nil)

// enter begins a change of the table or a read by a thread of the process. While the process hangs,
// enter does not return, even if the thread would not need the NIC. The caller unlocks mu.
func (s *Server) enter() {
	if rt, ok := s.ctx.Runtime().(interface{ AwaitHang() }); ok {
		rt.AwaitHang()
	}
	s.mu.Lock()
}

func (s *Server) Keys() int {
	s.enter()
	defer s.mu.Unlock()
	return s.t.keys()
}

// MaxKeys returns for how many keys the table has room.
func (s *Server) MaxKeys() int { return s.e.shape.Items }

// MaxValue returns the length of the longest value, in bytes.
func (s *Server) MaxValue() int { return s.e.shape.Value }

func (s *Server) Read(key uint64, dst []byte) (value []byte, version uint64, err error) {
	s.enter()
	defer s.mu.Unlock()
	value, version, err = s.t.get(key)
	return append(dst[:0], value...), version, err
}

func (s *Server) Update(key uint64, change func(value []byte, version uint64) ([]byte, memcached.Change)) error {
	s.enter()
	defer s.mu.Unlock()
	value, version, err := s.t.get(key)
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return err
	}
	next, do := change(value, version)
	switch {
	case do == memcached.Keep:
		return nil
	case do == memcached.Remove:
		return s.t.delete(key)
	case len(next) > s.e.shape.Value:
		return fmt.Errorf("%w: %d bytes, and the table is for up to %d", kv.ErrTooLarge, len(next), s.e.shape.Value)
	case err != nil:
		return s.t.insert(key, next)
	}
	return s.t.put(key, next)
}

func (s *Server) Sweep(f func(key uint64, value []byte) (remove bool)) error {
	s.enter()
	defer s.mu.Unlock()
	for n := range s.t.slots {
		if s.t.slots[n].print == 0 {
			continue
		}
		key, value, err := s.t.read(n)
		if err != nil {
			return err
		}
		if !f(key, value) {
			continue
		}
		if err := s.t.empty(n); err != nil {
			return err
		}
	}
	return nil
}
