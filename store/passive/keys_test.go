package passive_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// Two clients find each key in the same slot, also behind the end of the table, with the bytes that
// follow the key there, until every slot has a key.
func TestFind(t *testing.T) {
	const servers, base = 2, 64
	memory := map[string][]byte{"ms0": make([]byte, 4096), "ms1": make([]byte, 4096)}
	g := kvtest.NewRack(t, "name: passive\nhosts: [{name: \"ms[0-1]\", role: memory}, {name: cn0, role: compute}]", simrack.Options{},
		func(host string) memservice.Config { return memservice.Config{Buffer: memory[host]} })
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt := ctx.Runtime()
		cfg := passive.Config{Context: ctx, Manager: m, Servers: g.Servers}
		a, err := passive.Open(cfg, 256)
		if err != nil {
			return err
		}
		b, err := passive.Open(cfg, 256)
		if err != nil {
			return errors.Join(err, a.Close())
		}
		for _, k := range []passive.Keys{{At: base, SlotLen: 16, Slots: 37}, {At: base, SlotLen: 8, Slots: 1}, {At: base, SlotLen: 24, Slots: 25}} {
			clear(memory["ms0"])
			clear(memory["ms1"])
			kept, wrapped := 0, false
			taken := map[[2]uint64]bool{}
			for key := range uint64(200) {
				rest := make([]byte, k.SlotLen-8)
				if _, _, err := b.Find(k, key, false, rest, kvtest.Soon(rt)); !errors.Is(err, kv.ErrNotFound) {
					t.Errorf("%+v: key %d before it has a slot: %v", k, key, err)
				}
				server, slot, err := a.Find(k, key, true, rest, kvtest.Soon(rt))
				if errors.Is(err, kv.ErrFull) {
					continue
				}
				if err != nil {
					return err
				}
				own := bytes.Repeat([]byte{byte(key) + 1}, k.SlotLen-8)
				if err := a.Write(server, k.At+slot*uint64(k.SlotLen)+8, own, kvtest.Soon(rt)); err != nil && len(own) > 0 {
					return err
				}
				s, n, err := b.Find(k, key, kept%2 == 0, rest, kvtest.Soon(rt))
				if err != nil || s != server || n != slot || !bytes.Equal(rest, own) || slot >= uint64(k.Slots) || taken[[2]uint64{uint64(s), n}] {
					t.Errorf("%+v: key %d: slot %d of server %d with %x, %v; want slot %d of server %d with %x", k, key, n, s, rest, err, slot, server, own)
				}
				taken[[2]uint64{uint64(s), n}] = true
				_, first := passive.PlaceOf(key, servers)
				wrapped = wrapped || slot < first%uint64(k.Slots)
				kept++
			}
			if kept != servers*k.Slots || !wrapped && k.Slots > 1 {
				t.Errorf("%+v: %d keys have slots, some behind the end: %v", k, kept, wrapped)
			}
		}
		// A slot must be one word or several, and no longer than one READ of Find.
		for _, k := range []passive.Keys{{At: base, SlotLen: 12, Slots: 9}, {At: base, SlotLen: 0, Slots: 9}, {At: base, SlotLen: 264, Slots: 9}, {At: base + 4, SlotLen: 8, Slots: 9}, {At: base, SlotLen: 8}} {
			if _, _, err := a.Find(k, 1, true, nil, kvtest.Soon(rt)); err == nil || !errors.Is(err, kv.ErrNoEffect) || !strings.Contains(err.Error(), "slots") {
				t.Errorf("%+v: %v", k, err)
			}
		}
		k := passive.Keys{At: base, SlotLen: 16, Slots: 37}
		if _, _, err := a.Find(k, 1<<64-1, true, nil, kvtest.Soon(rt)); !errors.Is(err, passive.ErrKey) {
			t.Errorf("claim for the greatest key: %v", err)
		}
		if _, _, err := a.Find(k, 1<<64-1, false, nil, kvtest.Soon(rt)); !errors.Is(err, kv.ErrNotFound) {
			t.Errorf("the greatest key: %v", err)
		}
		return errors.Join(a.Close(), b.Close())
	})
	g.Finish()
}

// A key has one of the first 256 slots from its place on, also if these are no whole number of READs.
func TestFindEndsAtItsBound(t *testing.T) {
	const slots, size = 1000, 24
	memory := bytes.Repeat([]byte{0xee}, slots*size) // every slot has another key
	g := kvtest.NewRack(t, "name: passive\nhosts: [{name: ms0, role: memory}, {name: cn0, role: compute}]", simrack.Options{},
		func(string) memservice.Config { return memservice.Config{Buffer: memory} })
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt := ctx.Runtime()
		c, err := passive.Open(passive.Config{Context: ctx, Manager: m, Servers: g.Servers}, 256)
		if err != nil {
			return err
		}
		k := passive.Keys{SlotLen: size, Slots: slots}
		_, first := passive.PlaceOf(7, 1)
		for _, free := range []uint64{255, 256, 259} {
			at := (first + free) % slots * size
			clear(memory[at:][:8])
			_, slot, err := c.Find(k, 7, true, nil, kvtest.Soon(rt))
			if found := err == nil; found != (free < 256) || found && slot != at/size || !found && !errors.Is(err, kv.ErrFull) {
				t.Errorf("slot %d behind the key's place is free: slot %d, %v", free, slot, err)
			}
			copy(memory[at:], "\xee\xee\xee\xee\xee\xee\xee\xee")
		}
		return c.Close()
	})
	g.Finish()
}
