package serve

import (
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// reregMR changes a region: its memory, its domain or its access rights. If only the rights change, the
// keys stay. Otherwise the region gets other keys, as ibv_rereg_mr(3) allows, and until the command
// succeeds, the old ones are valid.
func (p *program) reregMR(r *programRegion, a uverbs.ReregMRArgs) (result, error) {
	const op, all = "rereg MR", uverbs.ReregTranslation | uverbs.ReregPD | uverbs.ReregAccess
	switch {
	case a.Flags == 0 || a.Flags&^all != 0:
		return result{}, refuse(op, "flags %#x; choose from %#x", a.Flags, all)
	case r.pd == nil:
		return result{}, refuse(op, "a region of device memory does not change")
	}
	pd, args, err := p.changed(r, a)
	if err != nil {
		return result{}, err
	}
	if a.Flags == uverbs.ReregAccess && (args.Access^r.made.Access)&(uverbs.OnDemand|uverbs.ZeroBased) == 0 {
		err = p.reregAccess(r, args)
	} else {
		by := p.by
		if a.Flags&uverbs.ReregTranslation == 0 { // the memory stays that of the process that has registered it
			by = &caller{c: p.by.c, of: p, mem: r.mem, process: r.process}
		}
		err = p.replaceRegion(op, by, r, pd, args)
	}
	if err != nil {
		return result{}, err
	}
	return answer(uverbs.Rereged{LKey: r.mr.LKey(), RKey: r.mr.RKey()}), nil
}

// changed returns the domain and the arguments of registration that a region has after a change.
func (p *program) changed(r *programRegion, a uverbs.ReregMRArgs) (pd verbs.PD, args uverbs.RegMRArgs, err error) {
	pd, args = r.pd, r.made
	if a.Flags&uverbs.ReregPD != 0 {
		if pd, err = named[verbs.PD](p, uPD, a.PD); err != nil {
			return nil, args, err
		}
	}
	if a.Flags&uverbs.ReregTranslation != 0 {
		args.Start, args.Length, args.VA = a.Start, a.Length, a.VA
	}
	if a.Flags&uverbs.ReregAccess != 0 {
		args.Access = a.Access | args.Access&(uverbs.ZeroBased|uverbs.OnDemand)
	}
	return pd, args, nil
}

// reregAccess changes the access rights. A right to write needs memory that the program can write.
func (p *program) reregAccess(r *programRegion, args uverbs.RegMRArgs) error {
	access, others := uverbs.AccessOf(args.Access &^ accessIgnored)
	if others != 0 {
		return unix.EOPNOTSUPP
	}
	if access&verbs.LocalWrite != 0 && args.Access&uverbs.OnDemand == 0 {
		if _, _, err := r.mem.examine(args.Start, args.Start+args.Length, true); err != nil {
			return err
		}
	}
	if err := r.mr.Rereg(access); err != nil {
		return err
	}
	r.made = args
	return nil
}

// replaceRegion registers the memory again, as that of the process `by`, and ends the old registration, which
// fails while windows are bound to it. The handle stays.
func (p *program) replaceRegion(op string, by *caller, r *programRegion, pd verbs.PD, args uverbs.RegMRArgs) error {
	next, err := p.newRegion(op, by, pd, args)
	if err != nil {
		return err
	}
	if err := r.mr.Dereg(); !gone(err) {
		_ = next.mr.Dereg() // nothing is bound to it
		p.c.objects.giveBack(kindMR, 0, 0)
		p.dropped(next)
		return err
	}
	p.c.objects.giveBack(kindMR, 0, 0)
	p.dropped(r)
	next.process.moved(next, r)
	return nil
}

// moved puts a region into the place of another one that has ended.
func (p *process) moved(from, to *programRegion) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*to = *from
	if _, far := p.far[from]; far {
		delete(p.far, from)
		p.far[to] = struct{}{}
	}
}

// queryMR returns what an importer of a region needs to know.
func (p *program) queryMR(r *programRegion, _ uverbs.Handle) (result, error) {
	return answer(uverbs.MRInfo{Length: uint64(r.mr.Len()), LKey: r.mr.LKey(), RKey: r.mr.RKey()}), nil
}
