package sherman_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A scan reads leaves together that were neighbours when its index cache saw them. Meanwhile a leaf
// was split off between them, and is merged with the second one during the READ, which copies the
// second one's records first and its header last. The scan returns the records of the leaf that was
// merged.
func TestScanReadsALeafDuringAMerge(t *testing.T) {
	const step = 100
	g := newRig(t, simrack.Options{}, region)
	g.servers = g.servers[:1]
	g.format(sherman.FormatConfig{Shape: mergeShape})
	warm, merged := false, false
	var torn, right layout.Addr
	h := g.Host("cn0")
	h.Go("scanner", false, func(ctx verbs.Context) {
		rt, m, seen, base := ctx.Runtime(), h.Manager(ctx), 0, uint64(0)
		// the first READ of the right leaf returns the torn copy
		mixed := func(wrs []verbs.SendWR) []verbs.SendWR {
			for i := range wrs {
				switch {
				case !merged || wrs[i].Op != verbs.OpRead:
				case base == 0:
					base = wrs[i].RemoteAddr
				case seen == 0 && wrs[i].RemoteAddr == base+right.Offset():
					seen++
					wrs[i].RemoteAddr += torn.Offset() - right.Offset()
				}
			}
			return wrs
		}
		err := func() error {
			c, err := g.node(sherman.NodeConfig{}).Open(sherman.Config{Context: bent{ctx, mixed}, Manager: m}, soon(rt))
			if err != nil {
				return err
			}
			keys := func() (list []uint64, err error) {
				err = c.Scan(0, mergeKeys, func(k uint64, _ []byte) bool { list = append(list, k); return true }, soon(rt))
				return list, err
			}
			for i := range uint64(40) {
				k := 9 * i % 40 // not in order, so that the leaves are half full
				if err := c.Insert(step*k, value(k, 0), soon(rt)); err != nil {
					return err
				}
			}
			if _, err := keys(); err != nil {
				return err
			}
			for warm = true; !merged; rt.Sleep(1) {
			}
			if err := c.ReadPage(layout.At(0, 0), make([]byte, 64), soon(rt)); err != nil { // for base
				return err
			}
			got, err := keys()
			if err == nil && seen != 1 {
				err = errors.New("the right leaf was not read")
			}
			if want, again := keys(); !slices.Equal(got, want) {
				err = errors.Join(err, again, fmt.Errorf("the scan returned the keys %d, not %d", got, want))
			}
			return errors.Join(err, c.Close())
		}()
		if err != nil {
			t.Error(err)
		}
	})
	h1 := g.Host("cn1")
	h1.Go("merger", false, func(ctx verbs.Context) {
		rt, m := ctx.Runtime(), h1.Manager(ctx)
		defer func() { merged = true }()
		n := g.node(sherman.NodeConfig{})
		err := func() error {
			c, err := n.Open(sherman.Config{Context: ctx, Manager: m}, soon(rt))
			for ; !warm; rt.Sleep(1) {
			}
			var before, after layout.Page
			read := func(p *layout.Page, a layout.Addr) {
				b := make([]byte, mergeShape.Page)
				if err == nil {
					err = c.ReadPage(a, b, soon(rt))
				}
				if err == nil {
					err = p.Parse(c.Super().Shape, b)
				}
			}
			root, failed := c.Root(soon(rt))
			err = errors.Join(err, failed)
			read(&before, root)
			r, _ := before.Slot(int(before.Order(nil)[1]))
			right = r.Child()
			for k := r.Key + step; err == nil && k <= r.Key+2*step; k += step { // the right leaf has room
				err = c.Delete(k, soon(rt))
			}
			first := r.Key - step/2 // the left leaf is split for these keys
			last := first
			for ; err == nil && n.Stats().Splits == 0; last++ {
				err = c.Insert(last, value(last, 0), soon(rt))
			}
			read(&before, right)
			for k := first + 1; err == nil && n.Stats().Joined == 0 && k < last; k++ {
				err = c.Delete(k, soon(rt))
			}
			read(&after, right)
			if err == nil && after.Lowest >= before.Lowest {
				err = fmt.Errorf("the right leaf covers %d, as before: %+v", after.Lowest, n.Stats())
			}
			if err != nil {
				return err
			}
			torn = layout.At(right.Server(), region-uint64(mergeShape.Page))
			return errors.Join(g.scribble(ctx, m, torn, append(slices.Clone(after.Bytes[:layout.Line]), before.Bytes[layout.Line:]...)), c.Close())
		}()
		if err != nil {
			t.Error(err)
		}
	})
	g.run()
}
