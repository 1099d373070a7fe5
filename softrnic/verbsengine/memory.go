package verbsengine

import (
	"cmp"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// mw is the application's handle of a memory window.
type mw struct {
	pd *pd
	mw *engine.MW
}

func (p *pd) AllocMW() (verbs.MW, error) {
	_, e, _ := p.ctx.shell.Enter()
	defer p.ctx.shell.Leave()
	w, err := e.AllocMW(p.pd)
	if err != nil {
		return nil, err
	}
	w.SetOwner(p.ctx.owner)
	return listed(p.mws, &mw{pd: p, mw: w}), nil
}

func (m *mw) RKey() (uint32, error) { return ask(m.pd.ctx, m.mw.RKey) }
func (m *mw) Dealloc() error        { return end(m.pd.ctx, m.pd.mws, m, m.mw.Dealloc) }

// dm is the application's handle of device memory.
type dm struct {
	ctx *Context
	dm  *engine.DM
}

func (c *Context) AllocDM(length int) (verbs.DM, error) {
	_, e, _ := c.shell.Enter()
	defer c.shell.Leave()
	if err := c.open("alloc DM"); err != nil {
		return nil, err
	}
	d, err := e.AllocDM(length)
	if err != nil {
		return nil, err
	}
	return listed(c.dms, &dm{ctx: c, dm: d}), nil
}

func (p *pd) RegDM(d verbs.DM, off, length int, access verbs.Access) (verbs.MR, error) {
	handle, ok := d.(*dm)
	if !ok || handle == nil || handle.ctx != p.ctx {
		return nil, &verbs.OpError{Op: "reg DM", Err: verbs.ErrInvalid, Detail: "the device memory was not allocated by this context"}
	}
	_, e, _ := p.ctx.shell.Enter()
	defer p.ctx.shell.Leave()
	return p.addMR(e.RegDM(p.pd, handle.dm, off, length, access))
}

func (d *dm) Len() int { return d.dm.Len() }

func (d *dm) ReadAt(b []byte, off int) error {
	return d.ctx.step(func(step) error { return d.dm.ReadAt(b, off) })
}

func (d *dm) WriteAt(b []byte, off int) error {
	return d.ctx.step(func(step) error { return d.dm.WriteAt(b, off) })
}

func (d *dm) Free() error { return end(d.ctx, d.ctx.dms, d, d.dm.Free) }

// closeMemory destroys the remaining windows and the device memory. It is called after the regions
// and queue pairs were destroyed.
func (c *Context) closeMemory() (errs []error) {
	var windows []*engine.MW
	for p := range c.pds {
		for m := range p.mws {
			windows = append(windows, m.mw)
		}
	}
	// The windows are sorted, so that the order is the same in every run.
	slices.SortFunc(windows, func(a, b *engine.MW) int { return cmp.Compare(a.Key(), b.Key()) })
	for _, w := range windows {
		errs = append(errs, verbs.Gone(w.Dealloc()))
	}
	for d := range c.dms {
		errs = append(errs, verbs.Gone(d.dm.Free()))
	}
	clear(c.dms)
	return errs
}
