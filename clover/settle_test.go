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
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// The answer to a DELETE is lost until the connection fails. By then the key has been inserted
// again, and the node to which the tombstone was appended has been reused: the tombstone is in no
// chain, and nothing in its memory shows that it was in one. The client must not append it to the
// key's new chain. (If the switch steers, one node less has to be reused: seed 1834 of sim clover
// --steer write.)
func TestDeleteWithoutAnswer(t *testing.T) {
	g := newRig(t, simrack.Options{}, meta.Config{
		Format: layout.Hardened, Keys: 16, Shares: [layout.Classes]int{1, 4}, Lease: 20 * time.Second, Grace: time.Second,
	}, 16<<10)
	const key, size = 1, 200 // tombstones are of a smaller class
	deleting, deleted := false, false
	g.client("cn0", func(c *clover.Client, rt verbs.Runtime) error {
		if err := c.Insert(key, value(key, 0, size), soon(rt)); err != nil {
			return err
		}
		if _, err := c.Get(key, nil, soon(rt)); err != nil { // the client is then connected to both servers
			return err
		}
		g.Host("cn0").SetFaults([]fault.Rule{{
			Link: "cn0", Dir: fault.Down, Kind: fault.Loss, Match: fault.Match{Opcodes: []wire.Opcode{wire.RCAtomicAck}},
		}})
		deleting = true
		err := c.Delete(key, soon(rt))
		deleted = true
		return err
	})
	g.client("cn1", func(c *clover.Client, rt verbs.Runtime) error {
		for ; !deleting; rt.Sleep(time.Millisecond) {
		}
		rt.Sleep(time.Millisecond)
		if _, err := c.Get(key, nil, soon(rt)); !errors.Is(err, kv.ErrNotFound) {
			return fmt.Errorf("after the DELETE was carried out: %w", err)
		}
		last := value(key, 1, size)
		if err := c.Insert(key, last, soon(rt)); err != nil {
			return err
		}
		for n := range 1000 { // until all nodes of the class are reused
			last = value(key, 2+n, size)
			if err := c.Put(key, last, soon(rt)); err != nil {
				return fmt.Errorf("PUT %d: %w", n, err)
			}
		}
		if deleted {
			return errors.New("the answer came too early")
		}
		for n := 0; !deleted && n < 1000; n++ {
			rt.Sleep(10 * time.Millisecond)
		}
		v, err := c.Get(key, nil, soon(rt))
		if err != nil || !bytes.Equal(v, last) {
			return fmt.Errorf("after the DELETE has ended, the key is %.20q: %w", v, err)
		}
		return nil
	})
	g.run()
}
