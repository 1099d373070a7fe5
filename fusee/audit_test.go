package fusee_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Audit finds no defect in a table that clients have made, and finds each kind of damage.
func TestAudit(t *testing.T) {
	g := newRig(t, 2, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 40, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	const keys = 30
	var super layout.Superblock
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		super = c.Super()
		for key := range uint64(keys) {
			if err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)); err != nil {
				return err
			}
		}
		out, err := c.Audit(soon(rt))
		if err != nil || out.Keys != keys || out.Slots != 40*21 || out.Unfinished > 0 || len(out.Defects) > 0 || out.Taken[0]+out.Taken[1] != 1 {
			t.Errorf("a table that is right: %+v, %v", out, err)
		}
		return nil
	})
	g.run()
	at, err := g.slotOf(super, 3)
	if err != nil {
		t.Fatal(err)
	}
	other, err := g.slotOf(super, 4)
	if err != nil {
		t.Fatal(err)
	}
	word := func(server int, off uint64) uint64 { return binary.LittleEndian.Uint64(g.memory[server][off:]) }
	put := func(server int, off, v uint64) { binary.LittleEndian.PutUint64(g.memory[server][off:], v) }
	ref := layout.Hardened.Ref(layout.Slot(word(0, at)))
	for _, c := range []struct {
		what, want string
		do         func()
	}{
		{"a backup differs", "", func() { put(1, at, word(1, at)+1) }},
		{"an object that is not whole", "replica 1 of its object", func() {
			server, off := super.Shape.Replica(ref.Server, ref.Place, 1)
			g.memory[server][off+20] ^= 1
		}},
		{"an object that is pending", "", func() {
			server, off := super.Shape.Replica(ref.Server, ref.Place, 1)
			g.memory[server][off] = byte(layout.Pending)
		}},
		{"a slot of another key", "is not its own", func() { put(0, other, word(0, at)); put(1, other, word(0, at)) }},
		{"a slot that names no object", "names no object", func() {
			ref := ref
			ref.Place = uint64(super.Shape.Blocks * super.Shape.BlockUnits)
			put(0, at, uint64(layout.Hardened.Slot(ref)))
			put(1, at, word(0, at))
		}},
		{"a later use of the object", "want version 2", func() {
			ref := ref
			ref.Version++
			put(0, at, uint64(layout.Hardened.Slot(ref)))
			put(1, at, word(0, at))
		}},
		{"a bucket of another subtable", "depth 1 and prefix 0x0, want depth 0", func() { put(0, at&^63, 1) }},
		{"no bucket", "no bucket", func() { put(0, at&^63, 1<<20) }},
	} {
		before := [][]byte{append([]byte(nil), g.memory[0]...), append([]byte(nil), g.memory[1]...)}
		c.do()
		out, err := fusee.Audit(super, func(server int, off uint64, n int) ([]byte, error) { return g.memory[server][off:][:n], nil })
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(out.Defects, "; "); (c.want == "") != (text == "") || !strings.Contains(text, c.want) || c.want == "" && out.Unfinished != 1 {
			t.Errorf("%s: %d unfinished, defects %q; want %q", c.what, out.Unfinished, text, c.want)
		}
		for i := range before {
			copy(g.memory[i], before[i])
		}
	}
}

// Audit notices what a split must not leave behind, and what only a split may show.
func TestAuditNoticesWhatSplitsLeave(t *testing.T) {
	g := newRig(t, 2, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 40, Grow: 1, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	var super layout.Superblock
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		super = c.Super()
		for key := range uint64(30) {
			if err := c.Insert(key, nil, soon(rt)); err != nil {
				return err
			}
		}
		return nil
	})
	g.run()
	at, err := g.slotOf(super, 3)
	if err != nil {
		t.Fatal(err)
	}
	word := func(server int, off uint64) uint64 { return binary.LittleEndian.Uint64(g.memory[server][off:]) }
	put := func(server int, off, v uint64) { binary.LittleEndian.PutUint64(g.memory[server][off:], v) }
	s := &super.Shape
	leave := uint64(layout.Hardened.Leave(layout.Slot(word(0, at))))
	for _, x := range []struct {
		what string
		do   func()
	}{
		{"leaving slot, no split: the key is lost", func() { put(0, at, leave); put(1, at, leave) }},
		{"directory of the backup differs", func() { put(1, s.EntryAt(0), layout.Entry{Splitting: true}.Word()) }},
		{"header of the backup differs", func() { put(1, at&^63, layout.Header{Depth: 1, Moving: true}.Word()) }},
		{"header moving, no split", func() { put(0, at&^63, layout.Header{Depth: 1, Moving: true}.Word()) }},
		{"a slot in a subtable not in use", func() { put(0, at+s.SubtableAt(1)-s.SubtableAt(0), word(0, at)) }},
	} {
		b0, b1 := append([]byte(nil), g.memory[0]...), append([]byte(nil), g.memory[1]...)
		x.do()
		out, err := fusee.Audit(super, func(server int, off uint64, n int) ([]byte, error) { return g.memory[server][off:][:n], nil })
		if err != nil || len(out.Defects)+out.Unfinished == 0 {
			t.Errorf("%s: not noticed: %d keys %d unfinished %v %v", x.what, out.Keys, out.Unfinished, out.Defects, err)
		}
		copy(g.memory[0], b0)
		copy(g.memory[1], b1)
	}
}
