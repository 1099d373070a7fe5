package ipc_test

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
)

// The answer to the hello says how long the program polls, whether there is a manager, and gives
// each program other random numbers.
func TestAnswerToTheHello(t *testing.T) {
	for spin, want := range map[time.Duration]time.Duration{0: 50 * time.Microsecond, -1: -1, time.Millisecond: time.Millisecond} {
		h := newHouse(t, spin, func(c *serve.Config) {
			if c.Seed = 1000; spin < 0 {
				c.Manager = nil
			}
		})
		var seeds [2]uint64
		for i := range seeds {
			a := h.attack(t, 0)
			if w := a.welcome; w.Spin != want || w.Manager != (spin >= 0) || w.Device.MaxQP <= 0 {
				t.Errorf("spin %v: %+v", spin, w)
			}
			seeds[i] = a.welcome.Seed
		}
		if seeds != [2]uint64{1001, 1002} {
			t.Errorf("seeds %v", seeds)
		}
	}
}

// Programs are listed in the order in which they have attached, with their process, user and objects.
func TestListOfPrograms(t *testing.T) {
	h := newHouse(t, 0, nil)
	before := time.Now()
	for range 5 {
		h.attack(t, 0)
	}
	var made proto.Handle
	a := h.attack(t, 0)
	for range 3 {
		must(t, a.call(proto.OpAllocPD, proto.None{}, &made))
	}
	must(t, a.call(proto.OpAlloc, proto.Alloc{Length: 8192}, nil))
	list := h.servers[0].Clients()
	if len(list) != 6 {
		t.Fatalf("%+v", list)
	}
	for i, c := range list {
		if c.ID != uint64(i+1) || c.PID != int32(os.Getpid()) || c.UID != uint32(os.Getuid()) || c.Since.Before(before) || c.Name != "attacker?[2J?" {
			t.Errorf("program %d: %+v", i, c)
		}
	}
	if c := list[5]; c.PDs != 3 || c.Bytes != 8192 || c.MRs+c.MWs+c.DMs+c.AHs+c.CQs+c.SRQs+c.QPs+c.Listeners != 0 {
		t.Errorf("%+v", c)
	}
}

// The socket belongs to the group of the configuration, whose users may connect to it.
func TestSocketOfAGroup(t *testing.T) {
	group := os.Getgid()
	if os.Geteuid() == 0 {
		group = 65533
	}
	if group == 0 {
		t.Skip("this process may not change the group of a file")
	}
	h := newHouse(t, 0, func(c *serve.Config) { c.Group = group })
	var st unix.Stat_t
	must(t, unix.Stat(h.sockets[0], &st))
	if int(st.Gid) != group || st.Mode&0o777 != 0o660 {
		t.Errorf("group %d, mode %o, want %d and 660", st.Gid, st.Mode&0o777, group)
	}
}
