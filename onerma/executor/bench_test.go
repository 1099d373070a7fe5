package executor

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// direct carries frames between the machines of two hosts at once.
type direct struct {
	r   *rack
	now clock.Time
	out [2]packetio.Batch
	res [1]Result
}

// run runs a transfer of host 0 to its end.
func (d *direct) run(x *Transfer) {
	h := d.r.hosts
	if err := h[0].exec.Start(d.now, *x); err != nil {
		d.r.t.Fatal(err)
	}
	for h[0].exec.Results(d.res[:]) == 0 {
		for i := range h {
			if h[i].m.Deadline() <= d.now {
				h[i].m.Tick(d.now, &d.out[i])
			}
		}
		if len(d.out[0].Frames)+len(d.out[1].Frames) == 0 {
			d.now = clock.Min(h[0].m.Deadline(), h[1].m.Deadline())
			continue
		}
		for from := range h {
			for _, f := range d.out[from].Frames {
				h[1-from].m.Frame(d.now, 0, f, &d.out[1-from])
			}
			d.out[from].Reset()
		}
	}
}

// A transfer of many operations allocates no memory: neither the NICs nor the executor.
func TestTransfersDoNotAllocate(t *testing.T) {
	d := &direct{r: newRack(t, 2, Config{First: 64})}
	for _, op := range []onerma.Op{onerma.Read, onerma.Write} {
		x := d.r.transfer(0, 1, op, 0, 256<<10)
		if got := testing.AllocsPerRun(100, func() { d.run(&x) }); got != 0 {
			t.Errorf("%v: %v allocations a transfer", op, got)
		}
		if d.res[0].Moved != x.Length {
			t.Errorf("%v: %+v", op, d.res[0])
		}
	}
}
