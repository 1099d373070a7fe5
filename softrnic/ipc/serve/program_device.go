package serve

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// This file has the commands of programs for device memory.

// dmAlign is the alignment of copies to and from device memory, and of its regions, in bytes: that of
// mlx5.
const dmAlign = 4

// mostDMAlign is the largest logarithm of an alignment that a program may ask for. Device memory has
// addresses of its own that begin at 0, so that any alignment holds.
const mostDMAlign = 12

// dmLength converts a length of a program. It returns -1, which no function takes, if it is too large.
func dmLength(n uint64) int {
	if n > math.MaxInt32 {
		return -1
	}
	return int(n)
}

// deviceMemories has the device memory of a program, by handles of its own.
type deviceMemories struct {
	c    *client
	all  map[uint32]verbs.DM
	next uint32 // the handle to try next
}

// named returns the device memory with a handle.
func (d *deviceMemories) named(h uint32) (verbs.DM, error) {
	dm := d.all[h]
	if dm == nil {
		return nil, fmt.Errorf("no device memory has handle %d: %w", h, unix.EINVAL)
	}
	return dm, nil
}

// ofMemory makes a command handler of a method f of deviceMemories; see the function `of`.
func ofMemory[A objectArgs](f func(d *deviceMemories, dm verbs.DM, a A) (result, error)) programHandler {
	return command(func(p *program, a A) (result, error) {
		dm, err := p.dms.named(a.Object())
		if err != nil {
			return result{}, err
		}
		return f(&p.dms, dm, a)
	})
}

func (d *deviceMemories) alloc(a uverbs.AllocDMArgs) (result, error) {
	const op = "alloc DM"
	length := dmLength(a.Length)
	switch {
	case length <= 0:
		return result{}, refuse(op, "length %d", a.Length)
	case a.Align > mostDMAlign:
		return result{}, refuse(op, "log_align_req is %d; the NIC takes 0 to %d", a.Align, mostDMAlign)
	}
	needs := dmNeeds(length)
	if err := d.c.objects.take(op, needs...); err != nil {
		return result{}, err
	}
	dm, err := d.c.ctx.AllocDM(length)
	if err != nil {
		d.c.objects.release(needs...)
		return result{}, err
	}
	for d.all[d.next] != nil {
		d.next++
	}
	h := d.next
	d.all[h] = dm
	d.next++
	return answer(uverbs.Handle{H: h}, uint32(0)), nil
}

func dmNeeds(length int) []need { return []need{{kindDM, 1}, {kindDevice, int64(length)}} }

func (d *deviceMemories) free(dm verbs.DM, a uverbs.Handle) (result, error) {
	length := dm.Len()
	err := dm.Free()
	if gone(err) {
		delete(d.all, a.H)
		d.c.objects.release(dmNeeds(length)...)
	}
	return result{}, err
}

// dmOffset checks the place of a copy.
func dmOffset(a uverbs.DMPlace) (int, error) {
	if a.Offset > math.MaxInt32 || a.Offset%dmAlign != 0 || a.Length%dmAlign != 0 {
		return 0, refuse("copy DM", "%d bytes from %d on; both must be multiples of %d", a.Length, a.Offset, dmAlign)
	}
	return int(a.Offset), nil
}

// copyTo copies the bytes behind the arguments to device memory.
func (d *deviceMemories) copyTo(c uverbs.Command) (result, error) {
	a, data, ok := uverbs.DecodeWith[uverbs.DMPlace](c)
	if !ok || uint64(a.Length) > uint64(len(data)) {
		return result{}, unix.EINVAL
	}
	dm, err := d.named(a.H)
	if err != nil {
		return result{}, err
	}
	off, err := dmOffset(a)
	if err != nil {
		return result{}, err
	}
	return result{}, dm.WriteAt(data[:a.Length], off)
}

func (d *deviceMemories) copyFrom(dm verbs.DM, a uverbs.DMPlace) (result, error) {
	off, err := dmOffset(a)
	if err != nil {
		return result{}, err
	}
	if a.Length > uverbs.MaxCommand {
		return result{}, refuse("copy DM", "%d bytes at once; at most %d", a.Length, uverbs.MaxCommand)
	}
	b := make([]byte, a.Length)
	if err := dm.ReadAt(b, off); err != nil {
		return result{}, err
	}
	return result{Answer: uverbs.Answer{Data: b}}, nil
}

// regDM registers a part of device memory. The program must say that its addresses begin at 0, as a
// kernel demands.
func (p *program) regDM(pd verbs.PD, a uverbs.RegDMArgs) (result, error) {
	const op = "reg DM"
	dm, err := p.dms.named(a.DM)
	if err != nil {
		return result{}, err
	}
	access, others := uverbs.AccessOf(a.Access &^ accessIgnored)
	off, length := dmLength(a.Offset), dmLength(a.Length)
	switch {
	case a.Access&uverbs.ZeroBased == 0:
		return result{}, refuse(op, "access has no IBV_ACCESS_ZERO_BASED, which regions of device memory need")
	case others != 0:
		return result{}, unix.EOPNOTSUPP
	case a.Offset%dmAlign != 0 || a.Length%dmAlign != 0:
		return result{}, refuse(op, "%d bytes from %d on; both must be multiples of %d", a.Length, a.Offset, dmAlign)
	}
	r := &programRegion{of: p.c}
	r.mr, err = made(&p.c.objects, op, kindMR, 0, func() (verbs.MR, error) { return pd.RegDM(dm, off, length, access) })
	if err != nil {
		return result{}, err
	}
	return answer(uverbs.MR{H: p.add(uMR, r), LKey: r.mr.LKey(), RKey: r.mr.RKey()}), nil
}

func (d *deviceMemories) query(dm verbs.DM, _ uverbs.Handle) (result, error) {
	return answer(uverbs.DM{Length: uint64(dm.Len())}), nil
}

// limits returns what the device has besides the attributes of QueryDevice. The answer to that
// command does not say it, because the rxe provider would pass it on and has no calls for it.
func (d *deviceMemories) limits() (result, error) {
	nic := d.c.s.pool.bound(d.c.ctx.Device(), &d.c.bounds.all)
	return answer(uverbs.Limits{MaxDM: uint64(nic.MaxDM)}), nil
}
