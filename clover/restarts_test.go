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
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// The metadata server restarts three times. Between the restarts keys are updated, deleted and inserted
// again: each incarnation goes on with the records of the one before, and no key has two.
func TestMetadataServerRestartsAgain(t *testing.T) {
	const keys, size, lease = 24, 40, 20 * time.Millisecond
	for _, shares := range [][layout.Classes]int{{1}, {}} {
		region := 16 << 10
		if shares == ([layout.Classes]int{}) {
			region = 70 * layout.UsualSegment
		}
		g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 64, Shares: shares, Lease: lease, Grace: lease}, region)
		g.clientOf("cn0", clover.Config{Spread: true}, func(c *clover.Client, rt verbs.Runtime) error {
			want := map[uint64][]byte{}
			check := func(when string) error {
				for k := range uint64(keys) {
					v, err := c.Get(k, nil, soon(rt))
					if x := want[k]; x == nil && !errors.Is(err, kv.ErrNotFound) || x != nil && (err != nil || !bytes.Equal(v, x)) {
						return fmt.Errorf("%s, key %d: %x, %w; want %x", when, k, v, err, x)
					}
				}
				return nil
			}
			for k := range uint64(keys) {
				want[k] = value(k, 0, size)
				if err := c.Insert(k, want[k], soon(rt)); err != nil {
					return err
				}
			}
			for round := 1; round <= 3; round++ {
				g.At(rt.Now(), g.Host("md0").Crash)
				g.At(rt.Now().Add(10*time.Millisecond), func() {
					g.Host("md0").Restart()
					g.meta()
				})
				rt.Sleep(200 * time.Millisecond)
				if err := check(fmt.Sprintf("after restart %d", round)); err != nil {
					return err
				}
				alive := 0
				for k := range uint64(keys) {
					if want[k] != nil {
						alive++
					}
				}
				if st := g.server.Snapshot(); st.Keys != uint64(alive) || st.Recovered != uint64(alive) || st.LostKeys != 0 {
					t.Errorf("restart %d: %d keys, %d recovered, %d lost; want %d", round, st.Keys, st.Recovered, st.LostKeys, alive)
				}
				for k := range uint64(keys) {
					var err error
					switch v := value(k, round, size); {
					case want[k] == nil:
						err = c.Insert(k, v, soon(rt))
						want[k] = v
					case (int(k)+round)%3 == 0:
						err = c.Delete(k, soon(rt))
						want[k] = nil
					default:
						err = c.Put(k, v, soon(rt))
						want[k] = v
					}
					if err != nil {
						return fmt.Errorf("round %d, key %d: %w", round, k, err)
					}
				}
				rt.Sleep(50 * time.Millisecond)
			}
			return check("at the end")
		})
		g.run()
	}
}
