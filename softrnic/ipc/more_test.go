package ipc_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Completions that do not fit into the shared ring stay in the NIC's queue, and come in order when
// there is room.
func TestCompletionsBeyondTheRing(t *testing.T) {
	for name, spin := range spins {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, spin, nil)
			c := h.open(t, 0)
			r, err := newReader(c, c)
			must(t, err)
			small, err := c.CreateCQ(4)
			must(t, err)
			pd, err := c.AllocPD()
			must(t, err)
			q, err := pd.CreateQP(verbs.QPInit{SendCQ: small, RecvCQ: small})
			must(t, err)
			must(t, q.ToInit(verbs.ToInit{}))
			must(t, q.ToError())
			for i := range uint64(7) { // four fit into the ring, four into the queue of the NIC
				must(t, q.PostSend(verbs.SendWR{ID: i, Flags: verbs.Inline}))
				_, err := q.Query() // the daemon has the post, and copies the completion
				must(t, err)
			}
			for i := range uint64(7) {
				must(t, small.Wait(c.Runtime().Now().Add(10*time.Second)))
				var wc [1]verbs.WC
				if n, err := small.Poll(wc[:]); n != 1 || err != nil || wc[0].ID != i {
					t.Fatalf("completion %d: %d, %v, %+v", i, n, err, wc[0])
				}
			}
			must(t, r.read())
		})
	}
}

// envStrangersGroup is the variable with the number of the stranger's only group but its own.
const envStrangersGroup = "STRANGERS_GROUP"

// strangerProgram tries to open objects of another user, and prints the errors.
func strangerProgram() error {
	const unprivileged = 65534
	if gid, err := strconv.Atoi(os.Getenv(envStrangersGroup)); err == nil {
		if err := errors.Join(syscall.Setgroups([]int{gid}), syscall.Setgid(unprivileged)); err != nil {
			return err
		}
	}
	if err := syscall.Setuid(unprivileged); err != nil {
		return err
	}
	c, err := ipc.Open(ipc.Config{Socket: socketsOfProgram()[0]})
	if err != nil {
		fmt.Println("not attached")
		return nil
	}
	defer c.Close()
	_, err = c.Share("private", 0, 0)
	fmt.Println(errors.Is(err, verbs.ErrAccess), errors.Is(c.Unshare("private"), verbs.ErrAccess))
	return nil
}

// The daemon distinguishes users: which of them may attach, and which may use a shared region.
func TestOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a program of another user is started")
	}
	for want, allow := range map[string]func(uint32) bool{"not attached": nil, "true true": func(uint32) bool { return true }} {
		h := newHouse(t, 0, func(c *serve.Config) { c.Allow = allow })
		c := h.open(t, 0)
		_, err := c.Share("private", 4096, verbs.LocalWrite)
		must(t, err)
		for p := h.sockets[0]; p != "/" && p != os.TempDir(); p = filepath.Dir(p) {
			must(t, os.Chmod(p, 0o777))
		}
		out, err := h.program(t, "stranger").CombinedOutput()
		must(t, err)
		if got := strings.TrimSpace(string(out)); got != want {
			t.Errorf("a stranger saw %q, want %q", got, want)
		}
	}
}

// A socket for a group lets its users attach, and no others.
func TestGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: programs of other users are started")
	}
	const group = 65533
	h := newHouse(t, 0, func(c *serve.Config) { c.Group = group })
	must(t, h.open(t, 0).Close())
	for p := filepath.Dir(h.sockets[0]); p != "/" && p != os.TempDir(); p = filepath.Dir(p) {
		must(t, os.Chmod(p, 0o777))
	}
	for gid, want := range map[int]string{group: "false false", group - 1: "not attached"} {
		cmd := h.program(t, "stranger")
		cmd.Env = append(cmd.Environ(), fmt.Sprintf("%s=%d", envStrangersGroup, gid))
		out, err := cmd.CombinedOutput()
		must(t, err)
		if got := strings.TrimSpace(string(out)); got != want {
			t.Errorf("a stranger in group %d saw %q, want %q", gid, got, want)
		}
	}
}

// A program registers memory, listens for a peer, and lets the peer READ it.
func Example() {
	ctx, err := ipc.Open(ipc.Config{}) // the NIC of the host that the program runs on
	if err != nil {
		fmt.Println("run me by `rdmalab exec`:", err)
		return
	}
	defer ctx.Close()
	pd, err := ctx.AllocPD()
	if err != nil {
		fmt.Println(err)
		return
	}
	mr, err := pd.RegMR(nil, 4096, verbs.LocalWrite|verbs.RemoteRead)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("peers read %d bytes at %#x with key %#x\n", mr.Len(), mr.Addr(), mr.RKey())
}
