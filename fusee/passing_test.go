package fusee_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// outsider is a client that has never used a key: it reads it, and tries to insert it.
type outsider struct {
	key         uint64
	get, insert error
	done        bool
}

func (o *outsider) run(c *fusee.Client, rt verbs.Runtime) error {
	_, o.get = c.Get(o.key, nil, soon(rt))
	o.insert = c.Insert(o.key, nil, soon(rt))
	o.done = true
	return nil
}

// A client has died when a key had left its slot and was not in the twin yet. Other clients read the key,
// and insert keys into the same buckets, without waiting for it; a PUT or DELETE takes it to the twin itself.
// The key is there once.
func TestOperationsBesideAKeyOnItsWay(t *testing.T) {
	for _, op := range []string{"PUT", "DELETE"} {
		g := newRig(t, 2, simrack.Options{})
		g.format(fusee.FormatConfig{Groups: 1, Grow: 1, IndexReplicas: 2, Block: 16 << 10})
		keys := keysThat(true, 1000, 4)
		key := keys[0]
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			for _, k := range keys[:2] {
				if err := c.Insert(k, kv.MakeValue(k, 1, 100), soon(rt)); err != nil {
					return err
				}
			}
			super := c.Super()
			s := &super.Shape
			at, err := g.slotOf(super, key)
			if err != nil {
				return err
			}
			leaving := layout.Hardened.Leave(layout.Slot(g.word(0, at)))
			for i := range g.servers {
				g.poke(i, s.EntryAt(0), layout.Entry{Splitting: true}.Word())
				for b := uint64(0); b < s.SubtableLen(); b += layout.BucketLen {
					g.poke(i, s.SubtableAt(0)+b, layout.Header{Depth: 1, Moving: true}.Word())
				}
				g.poke(i, at, uint64(leaving))
			}
			within := func(what string, most int, err, want error) {
				if rtts := c.Last().RTTs; !errors.Is(err, want) || rtts > most {
					t.Errorf("%s: %v after %d round trips, want %v after %d at most", what, err, rtts, want, most)
				}
			}
			other := &outsider{key: key}
			g.client("cn1", other.run)
			for !other.done {
				rt.Sleep(time.Microsecond)
			}
			if !errors.Is(other.insert, kv.ErrExists) || other.get != nil {
				t.Errorf("a client that does not know the key: INSERT: %v, GET: %v", other.insert, other.get)
			}
			_, err = c.Get(keys[1], nil, soon(rt)) // the client finds that there is a split
			within("GET of another key", 4, err, nil)
			v, err := c.Get(key, nil, soon(rt))
			within("GET", 3, err, nil)
			if n, err := kv.CheckValue(key, v); err != nil || n != 1 {
				t.Errorf("value %d, %v", n, err)
			}
			within("INSERT of the key", 7, c.Insert(key, nil, soon(rt)), kv.ErrExists)
			_, err = c.Get(keys[3], nil, soon(rt))
			within("GET of a key that is absent", 2, err, kv.ErrNotFound)
			if word := g.word(0, at); word != uint64(leaving) {
				t.Errorf("the slot has the value %#x", word)
			}
			if op == "DELETE" {
				within(op, 8, c.Delete(key, soon(rt)), nil)
				_, err := c.Get(key, nil, soon(rt))
				within("GET after a DELETE", 2, err, kv.ErrNotFound)
				return nil
			}
			within(op, 8, c.Put(key, kv.MakeValue(key, 2, 100), soon(rt)), nil)
			within("INSERT of another key", mostPause, c.Insert(keys[2], kv.MakeValue(keys[2], 1, 100), soon(rt)), nil)
			v, err = c.Get(key, nil, soon(rt))
			within("GET after a PUT", 2, err, nil)
			if n, err := kv.CheckValue(key, v); err != nil || n != 2 {
				t.Errorf("value %d, %v", n, err)
			}
			return nil
		})
		g.run()
		g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
			_, err := c.RecoverAll(soon(rt))
			out, e := c.Audit(soon(rt))
			if want := map[string]int{"PUT": 3, "DELETE": 1}[op]; e != nil || out.Keys != want || len(out.Defects) > 0 || out.Unfinished > 0 || out.Splitting > 0 {
				t.Errorf("%s: %+v, %v", op, out, e)
			}
			return err
		})
		g.run()
	}
}
