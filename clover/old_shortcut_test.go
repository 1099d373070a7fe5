package clover_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// The shortcut of a key names a node that is far behind the newest one, because the WRITEs of it are
// late. A writer and a reader that know an even older node still get to the newest one: they follow
// one shortcut once, or each would take them back for ever. If the newest node is a tombstone of
// which the metadata server does not know yet, the writer finds that, too.
func TestOldShortcutIsFollowedOnce(t *testing.T) {
	for appends := 6; appends <= 24; appends++ {
		for _, does := range []string{"GET", "PUT", "PUT after DELETE"} {
			t.Run(fmt.Sprintf("%d appends, %s", appends, does), func(t *testing.T) { followOnce(t, appends, does) })
		}
	}
}

func followOnce(t *testing.T, appends int, does string) {
	const key = 3
	records := 64
	if does == "PUT after DELETE" {
		records = 4 // the metadata server knows a node behind that of the shortcut
	}
	l := &between{}
	g := newRigOf(t, rackYAML, simrack.Options{Datagrams: true, Wrap: atSwitch(func(n simnet.Node) simnet.Node {
		l.Node = n
		return l
	})}, meta.Config{Format: layout.Hardened, Keys: 64, Shares: [layout.Classes]int{1}, Lease: 20 * time.Second, Grace: 20 * time.Second}, 64<<10)
	l.a, l.b = g.Host("cn0").Addr().As4(), g.Host("md0").Addr().As4()
	var shortcuts [2][]byte
	area := func(i int) []byte { // a part of the memory of a server that has the key's shortcut
		return g.lent[fmt.Sprint("ms", i)][layout.SuperblockLen : layout.SuperblockLen+64*layout.ShortcutLen]
	}
	stage := 0
	wait := func(rt verbs.Runtime, n int) {
		for stage < n {
			rt.Sleep(10 * time.Microsecond)
		}
	}
	g.clientOf("cn0", clover.Config{Records: records}, func(c *clover.Client, rt verbs.Runtime) error {
		if err := c.Insert(key, value(key, 0, 40), soon(rt)); err != nil {
			return err
		}
		stage = 1
		wait(rt, 2)
		for n := range appends {
			if n == 1 {
				for i := range shortcuts {
					shortcuts[i] = bytes.Clone(area(i))
				}
			}
			l.drop = does == "PUT after DELETE" && n > appends-3
			if err := c.Put(key, value(key, n+1, 40), soon(rt)); err != nil {
				return err
			}
		}
		if does == "PUT after DELETE" {
			if err := c.Delete(key, soon(rt)); err != nil {
				return err
			}
		}
		rt.Sleep(time.Millisecond)
		for i := range shortcuts {
			copy(area(i), shortcuts[i])
		}
		stage = 3
		wait(rt, 4)
		l.drop = false
		return nil
	})
	g.clientOf("cn1", clover.Config{}, func(c *clover.Client, rt verbs.Runtime) error {
		defer func() { stage = 4 }()
		wait(rt, 1)
		if _, err := c.Get(key, nil, soon(rt)); err != nil {
			return err
		}
		stage = 2
		wait(rt, 3)
		limit := rt.Now().Add(10 * time.Millisecond)
		switch does {
		case "PUT":
			return c.Put(key, value(key, 99, 40), limit)
		case "PUT after DELETE":
			if err := c.Put(key, value(key, 99, 40), limit); !errors.Is(err, kv.ErrNotFound) {
				return fmt.Errorf("the PUT of a deleted key: %w", err)
			}
			return nil
		}
		v, err := c.Get(key, nil, limit)
		if err == nil && !bytes.Equal(v, value(key, appends, 40)) {
			err = fmt.Errorf("the value is %.20q", v)
		}
		return err
	})
	g.run()
}
