package fusee_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// The round trips and requests of each operation, counted on the wire: those of the paper, and one
// more for an INSERT, which marks its object (see the package comment).
func TestRoundTripsInACapture(t *testing.T) {
	const (
		buckets = "READ+READ"
		write2  = "WRITE+WRITE"
	)
	for _, c := range []struct {
		objects, index                       int
		get1, get2, insert, put1, put2, gone string
	}{
		{
			1, 1, buckets + "+READ", buckets + ", READ",
			buckets + "+WRITE, CMP_SWAP+" + buckets + ", WRITE",
			buckets + "+WRITE, CMP_SWAP", buckets + "+WRITE, READ, CMP_SWAP", buckets + "+WRITE, CMP_SWAP",
		},
		{
			2, 1, buckets + "+READ", buckets + ", READ",
			buckets + "+" + write2 + ", CMP_SWAP+" + buckets + ", " + write2,
			buckets + "+" + write2 + ", CMP_SWAP", buckets + "+" + write2 + ", READ, CMP_SWAP", buckets + "+" + write2 + ", CMP_SWAP",
		},
		{
			2, 2, buckets + "+READ", buckets + ", READ",
			buckets + "+" + write2 + ", CMP_SWAP, " + write2 + ", CMP_SWAP+" + buckets + ", " + write2,
			buckets + "+" + write2 + ", CMP_SWAP, " + write2 + ", CMP_SWAP",
			buckets + "+" + write2 + ", READ, CMP_SWAP, " + write2 + ", CMP_SWAP",
			buckets + "+" + write2 + ", CMP_SWAP, " + write2 + ", CMP_SWAP",
		},
		{
			3, 3, buckets + "+READ", buckets + ", READ",
			buckets + "+" + write2 + "+WRITE, CMP_SWAP+CMP_SWAP, " + write2 + "+WRITE, CMP_SWAP+" + buckets + ", " + write2 + "+WRITE",
			buckets + "+" + write2 + "+WRITE, CMP_SWAP+CMP_SWAP, " + write2 + "+WRITE, CMP_SWAP",
			buckets + "+" + write2 + "+WRITE, READ, CMP_SWAP+CMP_SWAP, " + write2 + "+WRITE, CMP_SWAP",
			buckets + "+" + write2 + "+WRITE, CMP_SWAP+CMP_SWAP, " + write2 + "+WRITE, CMP_SWAP",
		},
	} {
		seen := &kvtest.Capture{}
		g := newRig(t, 3, simrack.Options{Trace: seen.See})
		f := fusee.FormatConfig{Replicas: c.objects, IndexReplicas: c.index}
		g.format(f)
		stage := 0
		step := func(text, want string, client *fusee.Client, do func() error) error {
			seen.Phases()
			if err := do(); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
			got := seen.Phases()
			if got != want {
				t.Errorf("%s: %s: on the wire: %s; want %s", name(3, f), text, got, want)
			}
			if n := strings.Count(want, ", ") + 1; client.Last().RTTs != n {
				t.Errorf("%s: %s: the client counts %d round trips, on the wire are %d", name(3, f), text, client.Last().RTTs, n)
			}
			return nil
		}
		const key = 5
		v := kv.MakeValue(key, 1, 100)
		g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error { // its changes make what cn0 remembers out of date
			for stage < 1 {
				rt.Sleep(1000)
			}
			err := c.Put(key, v, soon(rt))
			stage = 2
			return err
		})
		g.client("cn0", func(client *fusee.Client, rt verbs.Runtime) error {
			for k := range uint64(10) { // so that the client has blocks for its objects
				if err := client.Insert(100+k, v, soon(rt)); err != nil {
					return err
				}
			}
			for _, s := range []struct {
				text, want string
				do         func() error
			}{
				{"INSERT", c.insert, func() error { return client.Insert(key, v, soon(rt)) }},
				{"GET of a key that is remembered", c.get1, func() error { _, err := client.Get(key, nil, soon(rt)); return err }},
				{"PUT of a key that is remembered", c.put1, func() error { return client.Put(key, v, soon(rt)) }},
			} {
				if err := step(s.text, s.want, client, s.do); err != nil {
					return err
				}
			}
			for stage = 1; stage < 2; {
				rt.Sleep(1000)
			}
			rt.Sleep(1e6)
			if err := step("PUT of a key that has changed", c.put2, client, func() error { return client.Put(key, v, soon(rt)) }); err != nil {
				return err
			}
			if err := step("DELETE", c.gone, client, func() error { return client.Delete(key, soon(rt)) }); err != nil {
				return err
			}
			return nil
		})
		g.run()
		g.client("cn0", func(client *fusee.Client, rt verbs.Runtime) error { // this client remembers no slots yet
			return step("GET of a key that is not remembered", c.get2, client, func() error { _, err := client.Get(100, nil, soon(rt)); return err })
		})
		g.run()
	}
}
