package clover_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The shortcut of a key names a node that is far behind the newest one, because the WRITEs of it are
// late. A writer and a reader that know an even older node still get to the newest one: they follow
// one shortcut once, or each would take them back for ever.
func TestOldShortcutIsFollowedOnce(t *testing.T) {
	const key, appends = 3, 40
	for _, does := range []string{"GET", "PUT"} {
		t.Run(does, func(t *testing.T) {
			g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 64, Shares: [layout.Classes]int{1}}, 64<<10)
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
			g.clientOf("cn0", clover.Config{Records: 64}, func(c *clover.Client, rt verbs.Runtime) error {
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
					if err := c.Put(key, value(key, n+1, 40), soon(rt)); err != nil {
						return err
					}
				}
				rt.Sleep(time.Millisecond)
				for i := range shortcuts {
					copy(area(i), shortcuts[i])
				}
				stage = 3
				wait(rt, 4)
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
				if does == "PUT" {
					return c.Put(key, value(key, 99, 40), limit)
				}
				v, err := c.Get(key, nil, limit)
				if err == nil && !bytes.Equal(v, value(key, appends, 40)) {
					err = fmt.Errorf("the value is %.20q", v)
				}
				return err
			})
			g.run()
		})
	}
}
