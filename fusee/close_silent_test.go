package fusee_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// The service of a memory server does not answer Takes (its NIC does all one-sided operations). A client closes:
// it must leave the blocks that it has, as it did before there were requests ahead.
func TestCloseWhileTheServiceIsSilent(t *testing.T) {
	for _, ahead := range []int{-1, 0} {
		t.Run(fmt.Sprint("ahead", ahead), func(t *testing.T) {
			g := newRigOf(t, 2, 8<<20, simrack.Options{})
			g.format(fusee.FormatConfig{Groups: 300, Block: 16 << 10})
			g.ahead = ahead
			asked, takes := 0, 0
			var rt verbs.Runtime
			g.taking(func(n int, next func() ([]byte, error)) ([]byte, error) {
				if takes++; takes > 40 {
					asked++
					rt.Sleep(1500 * time.Millisecond)
					return nil, errors.New("no answer")
				}
				return next()
			}, func(c *fusee.Client, clock verbs.Runtime) error {
				rt = clock
				for key := uint64(0); asked == 0 && (ahead == 0 || takes < 40); key++ {
					if err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)); err != nil {
						return err
					}
				}
				return nil
			})
			g.run()
			t.Log(asked, "requests without an answer; end", g.Now())
			g.noOwners(100)
		})
	}
}
