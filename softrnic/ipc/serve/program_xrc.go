package serve

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// programXRC executes the commands of XRC of an unmodified program. What outlives the program is in xrcDomains.
type programXRC struct {
	p       *program
	domains *xrcDomains // of all programs
}

func (p *program) xrc() programXRC { return programXRC{p, &p.c.s.programs.xrc} }

// xrcdObject is a program's handle of an XRC domain.
type xrcdObject struct {
	domain *xrcDomain
	x      verbs.XRCD // the domain, for shared receive queues of the program
	opened int        // handles of targets that were made or opened with this handle
}

// targetUse is what a program's handle of a target has in addition to that of another queue pair.
type targetUse struct {
	of   *xrcTarget
	xrcd *xrcdObject
}

// current gives o the attributes that any program has set, if o is a handle of a target. The caller must call
// the function that it returns, which keeps the attributes of o for the other handles; until then no other
// program changes the queue pair.
func (o *programQPObject) current() (keep func()) {
	if o.target == nil {
		return func() {}
	}
	t := o.target.of
	t.mu.Lock()
	o.attr = t.attr
	return func() {
		t.attr = o.attr
		t.mu.Unlock()
	}
}

// file returns the descriptor that came with the command that is being executed. It stays the caller's.
func (by *caller) file() (int, error) {
	if len(by.sent) != 1 {
		return -1, unix.EBADF
	}
	flags, err := unix.FcntlInt(uintptr(by.sent[0]), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_PATH != 0 {
		return -1, unix.EBADF
	}
	return by.sent[0], nil
}

func (x programXRC) open(a uverbs.XRCDArgs) (result, error) {
	p := x.p
	file, err := -1, error(nil)
	if a.FD != -1 {
		if file, err = p.by.file(); err != nil {
			return result{}, err
		}
	}
	o, err := made(&p.c.objects, "open XRC domain", kindXRCD, 0, func() (*xrcdObject, error) {
		d, err := x.domains.enter(file, a.Flags)
		if err != nil {
			return nil, err
		}
		shared, err := p.c.ctx.ShareXRCD(d.x)
		if err != nil {
			return nil, errors.Join(err, x.domains.leave(d))
		}
		return &xrcdObject{domain: d, x: shared}, nil
	})
	if err != nil {
		return result{}, err
	}
	return answer(uverbs.Handle{H: p.add(uXRCD, o)}), nil
}

// close ends a handle of a domain. It fails with EBUSY while the program has shared receive queues or targets
// that were made or opened with it.
func (x programXRC) close(o *xrcdObject, a uverbs.Handle) (result, error) {
	return result{}, x.p.destroy(uXRCD, a.H, kindXRCD, 0, func() error {
		if o.opened > 0 && x.domains.lives(o.domain) {
			return verbs.Errorf("close XRC domain", verbs.ErrBusy, "destroy the %d queue pairs of it first", o.opened)
		}
		if err := verbs.Gone(o.x.Dealloc()); err != nil {
			return err
		}
		return x.domains.leave(o.domain)
	})
}

func (x programXRC) createSRQ(pd verbs.PD, a uverbs.XSRQArgs) (result, error) {
	q := &x.p.queues
	args := uverbs.SRQArgs{User: a.User, PD: a.PD, MaxWR: a.MaxWR, MaxSGE: a.MaxSGE, Limit: a.Limit}
	switch a.Type {
	case uverbs.SRQBasic:
		return q.makeSRQ(pd, args, verbs.SRQInit{})
	case uverbs.SRQXRC:
	default:
		return result{}, unix.EOPNOTSUPP
	}
	o, err := named[*xrcdObject](x.p, uXRCD, a.XRCD)
	if err != nil {
		return result{}, err
	}
	c, err := named[*cqObject](x.p, uCQ, a.CompleteQ)
	if err != nil {
		return result{}, err
	}
	x.p.with(func(*port) { c.own.xrc = true })
	return q.makeSRQ(pd, args, verbs.SRQInit{XRCD: o.x, CQ: c.cq})
}

// createTarget makes a target. In place of a protection domain, the arguments have an XRC domain.
func (x programXRC) createTarget(a uverbs.QPArgs) (uverbs.QP, error) {
	o, err := named[*xrcdObject](x.p, uXRCD, a.PD)
	if err != nil {
		return uverbs.QP{}, err
	}
	kept := uverbs.QPArgs{Type: a.Type, SignalAll: a.SignalAll}
	return x.use("create QP", o, a.User, func() (*xrcTarget, error) { return x.domains.newTarget(o.domain, kept) })
}

// openTarget opens a target that this or another program has made.
func (x programXRC) openTarget(o *xrcdObject, a uverbs.OpenQPArgs) (result, error) {
	if a.Type != uverbs.TypeXRCTarget {
		return result{}, refuse("open QP", "type %d; only targets of XRC can be opened", a.Type)
	}
	out, err := x.use("open QP", o, a.User, func() (*xrcTarget, error) { return x.domains.openTarget(o.domain, wire.QPN(a.QPN)) })
	return answer(out), err
}

// use makes a handle of the target that f returns.
func (x programXRC) use(op string, in *xrcdObject, user uint64, f func() (*xrcTarget, error)) (uverbs.QP, error) {
	p := x.p
	t, err := made(&p.c.objects, op, kindQP, 0, f)
	if err != nil {
		return uverbs.QP{}, err
	}
	o := &programQPObject{qp: t.qp, target: &targetUse{t, in}, made: t.made, owner: p.newOwner(user)}
	p.with(func(port *port) {
		p.c.s.pump.tell() // events that were raised before are not for this handle
		if t.domain.table == p.c.s.pump.table {
			p.c.s.pump.rememberTarget(targetHandle{port, &o.owner, verbsengine.EngineQP(t.qp)})
		} // else it has ended with the NIC meanwhile, and its number is that of a new queue pair
	})
	in.opened++
	h := max(p.next[uQP], uverbs.FirstTarget)
	for p.objects[uQP][h] != nil {
		h = max(h+1, uverbs.FirstTarget)
	}
	p.next[uQP] = h + 1
	p.objects[uQP][h] = o
	return uverbs.QP{H: h, QPN: uint32(t.qp.QPN())}, nil
}

// closeTarget ends a handle of a target, and with the last one of all programs the target.
func (x programXRC) closeTarget(o *programQPObject, h uint32) (result, error) {
	p, r := x.p, result{}
	p.with(func(*port) {
		p.c.s.pump.tell()
		p.c.s.pump.forgetTarget(o.qp.QPN(), func(th targetHandle) bool { return th.handle == &o.owner })
		r = answer(uverbs.Reported{Events: p.ended(&o.owner)})
	})
	r.Element, r.Channel, r.Drain = uint64(o.owner.tag), uverbs.NoChannel, 1
	o.target.xrcd.opened--
	return r, p.destroy(uQP, h, kindQP, 0, func() error { return x.domains.closeTarget(o.target.of) })
}

// leave ends the program's handles of targets and of XRC domains. It is called when the program's context is
// closed.
func (x programXRC) leave() error {
	var errs []error
	for _, o := range x.p.objects[uQP] {
		if q, ok := o.(*programQPObject); ok && q.target != nil {
			errs = append(errs, x.domains.closeTarget(q.target.of))
		}
	}
	for _, o := range x.p.objects[uXRCD] {
		if d, ok := o.(*xrcdObject); ok {
			errs = append(errs, x.domains.leave(d.domain))
		}
	}
	return errors.Join(errs...)
}
