package ipc_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/e2e/memcgroup"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// resident counts the pages of a mapping that are in memory.
func resident(t *testing.T, b []byte) (n int) {
	t.Helper()
	pages := make([]byte, len(b)/os.Getpagesize())
	//nolint:gosec // mincore takes an address
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&pages[0]))); e != 0 {
		t.Fatal(e)
	}
	for _, p := range pages {
		n += int(p & 1)
	}
	return n
}

// The pages of memory are there when the program gets it: no access to it makes them.
func TestPagesAreThere(t *testing.T) {
	h := newHouse(t, -1, nil)
	c := h.open(t, 0)
	const pages = 64
	b, err := c.Alloc(pages * os.Getpagesize())
	must(t, err)
	if got := resident(t, b); got != pages {
		t.Errorf("%d of %d pages are there", got, pages)
	}
	must(t, c.Free(b))
}

// charged is what ownerProgram takes in each of the three ways.
const charged = 8 << 20

// ownerProgram gets memory and says how; then it keeps it until its input ends.
func ownerProgram() error {
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil { // it is in its cgroup now
		return err
	}
	c, err := ipc.Open(ipc.Config{Socket: socketsOfProgram()[0]})
	if err != nil {
		return err
	}
	pd, err := c.AllocPD()
	if err != nil {
		return err
	}
	const access = verbs.LocalWrite | verbs.RemoteWrite
	_, err = pd.RegMR(nil, charged, access)
	_, errAlloc := c.Alloc(charged)
	_, errShare := c.Share("charged", charged, access)
	if err := errors.Join(err, errAlloc, errShare); err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = in.ReadString('\n')
	return c.Close()
}

// Memory of a program is charged to the program's cgroup, whether it was allocated, registered or
// shared, although the daemon has made and mapped it.
func TestMemoryIsChargedToTheProgram(t *testing.T) {
	group := memcgroup.New(t)
	h := newHouse(t, -1, nil)
	cmd := h.program(t, "owner")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	group.Add(t, cmd.Process.Pid)
	_, err = in.Write([]byte("go\n"))
	must(t, err)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if got := group.Charged(t); got < 3*charged {
		t.Errorf("%d bytes are charged to the program, want at least %d", got, 3*charged)
	}
	must(t, in.Close())
	must(t, cmd.Wait())
	h.waitObjects(t, 0, 1, 1) // the shared region stays
}
