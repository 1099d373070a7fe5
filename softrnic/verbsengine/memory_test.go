package verbsengine

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Windows and device memory, used through the verbs; Close destroys them.
func TestWindowsAndDeviceMemory(t *testing.T) {
	b := newFake(t)
	ctx, other := New(b), New(newFake(t))
	o := newObjects(t, ctx)
	w, err := o.pd.AllocMW()
	if err != nil {
		t.Fatal(err)
	}
	key, err := w.RKey()
	if err != nil || verbs.NextRKey(key)>>8 != key>>8 || verbs.NextRKey(key) == key || verbs.NextRKey(0x12ff) != 0x1200 {
		t.Errorf("key %#x, %v", key, err)
	}
	spare, err := o.pd.AllocMW()
	if err != nil {
		t.Fatal(err)
	}
	if err := spare.Dealloc(); err != nil {
		t.Fatal(err)
	}
	d, err := ctx.AllocDM(1000)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.AllocDM(1000)
	if err != nil {
		t.Fatal(err)
	}
	reg := func(d verbs.DM, off, n int) error { _, err := o.pd.RegDM(d, off, n, verbs.LocalWrite); return err }
	wantErr(t, "foreign", reg(foreign, 0, 8), verbs.ErrInvalid)
	wantErr(t, "nil", reg((*dm)(nil), 0, 8), verbs.ErrInvalid)
	wantErr(t, "behind", reg(d, 1000, 8), verbs.ErrInvalid)
	wantErr(t, "too much", func() error { _, err := ctx.AllocDM(256 << 10); return err }(), verbs.ErrLimit)
	m, err := o.pd.RegDM(d, 8, 100, verbs.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.WriteAt([]byte{1, 2, 3}, 9); err != nil || m.Addr() != 0 || m.Len() != 100 || d.Len() != 1000 {
		t.Errorf("%v, address %#x, %d of %d bytes", err, m.Addr(), m.Len(), d.Len())
	}
	var got [3]byte
	if err := m.ReadAt(got[:], 1); err != nil || got != [3]byte{1, 2, 3} {
		t.Errorf("%v, %v", got, err)
	}
	if err := d.ReadAt(got[:1], 11); err != nil || got[0] != 3 {
		t.Errorf("%v, %v", got, err)
	}
	wantErr(t, "in use", d.Free(), verbs.ErrBusy)
	second, err := ctx.AllocDM(8)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Free(); err != nil {
		t.Fatal(err)
	}
	if err := ctx.Close(); err != nil {
		t.Error(err)
	}
	wantErr(t, "after close", d.Free(), verbs.ErrClosed)
	_, err = w.RKey()
	wantErr(t, "window after close", err, verbs.ErrClosed)
	wantErr(t, "alloc after close", func() error { _, err := ctx.AllocDM(8); return err }(), verbs.ErrClosed)
	if o := b.e.Tables.Objects(); o != (engine.Objects{}) {
		t.Errorf("left: %+v", o)
	}
}
