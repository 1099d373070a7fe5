package nictable_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/memcached"
	"github.com/rdmalab/rdmalab/store/nictable"
)

// The value for a client stays as it is while a thread of the process reads another key.
func TestAnswerBesideLocalRead(t *testing.T) {
	g := newRig(t, nictable.Shape{Items: 8, Value: 100})
	g.alone(func(rt verbs.Runtime, c *nictable.Client) error {
		for key, value := range []string{"hello", "other"} {
			if err := c.Insert(uint64(key), []byte(value), kvtest.Soon(rt)); err != nil {
				return err
			}
		}
		answer, err := g.server.Answer(0)
		if err != nil {
			return err
		}
		if _, _, err := g.server.Read(1, nil); err != nil {
			return err
		}
		if string(answer) != "hello" {
			t.Errorf("the answer is %q, which is the value of another key", answer)
		}
		return nil
	})
}

// Clients find the values whose versions come before and after the wrap.
func TestVersionsWrap(t *testing.T) {
	g := newRig(t, nictable.Shape{Items: 8, Value: 100})
	g.alone(func(rt verbs.Runtime, c *nictable.Client) error {
		g.server.SetVersion(1<<32 - 3)
		for key := range uint64(5) {
			if err := c.Insert(key, []byte("hello"), kvtest.Soon(rt)); err != nil {
				return err
			}
			if v, err := c.Get(key, nil, kvtest.Soon(rt)); string(v) != "hello" || err != nil {
				t.Errorf("key %d: %q, %v", key, v, err)
			}
		}
		return nil
	})
}

// What the process changes by itself, clients read by its NIC, and the other way round: up to the longest
// value. Versions are new ones.
func TestLocalChanges(t *testing.T) {
	const long = 64<<10 + 256
	g := newRig(t, nictable.Shape{Items: 8, Value: long})
	var end bool
	g.serve(&end)
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt := ctx.Runtime()
		c, err := g.open(ctx, m)
		if err != nil {
			return err
		}
		s := g.server
		store := func(key uint64, next []byte) error {
			return s.Update(key, func([]byte, uint64) ([]byte, memcached.Change) { return next, memcached.Store })
		}
		newest := uint64(0)
		for _, value := range [][]byte{{}, []byte("hello"), bytes.Repeat([]byte("x"), long)} {
			if err := store(7, value); err != nil {
				return err
			}
			mine, version, err := s.Read(7, nil)
			if !bytes.Equal(mine, value) || version <= newest || err != nil {
				t.Errorf("Read: %d bytes of %d, version %d behind %d, %v", len(mine), len(value), version, newest, err)
			}
			newest = version
			if got, err := c.Get(7, nil, kvtest.Soon(rt)); !bytes.Equal(got, value) || err != nil {
				t.Errorf("GET: %d bytes of %d, %v", len(got), len(value), err)
			}
		}
		if err := store(7, make([]byte, long+1)); !errors.Is(err, kv.ErrTooLarge) {
			t.Errorf("too long: %v", err)
		}
		if err := c.Put(7, []byte("theirs"), kvtest.Soon(rt)); err != nil {
			return err
		}
		err = s.Update(7, func(value []byte, version uint64) ([]byte, memcached.Change) {
			if string(value) != "theirs" || version <= newest {
				t.Errorf("Update: %q of version %d", value, version)
			}
			return nil, memcached.Remove
		})
		if err != nil {
			return err
		}
		if _, err := c.Get(7, nil, kvtest.Soon(rt)); !errors.Is(err, kv.ErrNotFound) {
			t.Errorf("GET of a key that was removed: %v", err)
		}
		if _, _, err := s.Read(7, nil); !errors.Is(err, kv.ErrNotFound) {
			t.Errorf("Read of a key that was removed: %v", err)
		}
		for key := range uint64(8) {
			if err := store(key, []byte{byte(key)}); err != nil {
				return err
			}
		}
		if err := store(8, nil); !errors.Is(err, kv.ErrFull) || s.Keys() != s.MaxKeys() {
			t.Errorf("a full table of %d keys: %v", s.Keys(), err)
		}
		if err := s.Sweep(func(key uint64, value []byte) bool { return key%2 == 0 && value[0] == byte(key) }); err != nil {
			return err
		}
		for key := range uint64(8) {
			if _, err := c.Get(key, nil, kvtest.Soon(rt)); errors.Is(err, kv.ErrNotFound) != (key%2 == 0) {
				t.Errorf("behind Sweep, key %d: %v", key, err)
			}
		}
		end = true
		rt.Sleep(200 * time.Millisecond)
		return c.Close()
	})
	g.Finish()
}
