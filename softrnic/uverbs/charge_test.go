package uverbs_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/e2e/memcgroup"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// untouchedVariable is set in the environment of a test binary that runs untouched.
const untouchedVariable = "RDMALAB_TEST_UNTOUCHED"

// untouchedLen is how much memory of each kind such a program maps.
const untouchedLen = 8 << 20

func TestMain(m *testing.M) {
	if os.Getenv(untouchedVariable) != "" {
		if err := untouched(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(lentVariable) != "" {
		fmt.Fprintln(os.Stderr, lend()) // it returns only an error
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// untouched is a program with private and shared memory that it has mapped and never touches. It
// waits for a word, maps, prints the addresses, and ends with its input.
func untouched() error {
	var word string
	if _, err := fmt.Scanln(&word); err != nil { // it is in its cgroup now
		return err
	}
	var at []any
	for _, kind := range []int{unix.MAP_PRIVATE, unix.MAP_SHARED} {
		b, err := unix.Mmap(-1, 0, untouchedLen, unix.PROT_READ|unix.PROT_WRITE, kind|unix.MAP_ANON)
		if err != nil {
			return err
		}
		_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE) // a huge page could reach from one half into the other; not all kernels have them
		at = append(at, addr(b))
	}
	fmt.Println(at...)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// What a peer writes or sends into memory that an unmodified program has not touched is charged to
// the cgroup of the program, although the daemon's calls make the pages.
func TestPagesOfPeersAreChargedToTheProgram(t *testing.T) {
	group := memcgroup.New(t)
	h := newHouse(t, serve.Limits{})
	h.timeout = 18 // eight times 1 s: the processors of a guest are emulated
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), untouchedVariable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		must(t, in.Close())
		must(t, cmd.Wait())
	})
	group.Add(t, cmd.Process.Pid)
	_, err = io.WriteString(in, "go\n")
	must(t, err)
	var at [2]uint64
	_, err = fmt.Fscanln(out, &at[0], &at[1])
	must(t, err)
	const half, chunk = untouchedLen / 2, 64 << 10
	for i, kind := range []string{"private", "shared"} {
		a := h.attach(t, 1).queuePair(uverbs.TypeRC)
		program := h.attachWith(t, fmt.Sprintf("/proc/%d/mem", cmd.Process.Pid), fmt.Sprintf("/proc/%d/maps", cmd.Process.Pid))
		b := program.queuePairOn(uverbs.TypeRC, at[i], untouchedLen)
		a.connect(b, 0)
		b.connect(a, 1)
		for _, by := range []string{"WRITE", "SEND"} {
			before := group.Charged(t)
			for off := 0; off < half; off += chunk {
				if by == "WRITE" {
					a.post(opWrite, 0, chunk, at[i]+uint64(off), b.mr.RKey)
				} else {
					b.receive(half+off, chunk)
					a.post(opSend, 0, chunk, 0, 0)
					b.succeeds()
				}
				a.succeeds()
			}
			if got := group.Charged(t) - before; got < half*3/4 { // the kernel charges some pages in advance
				t.Errorf("%s of %d bytes into %s memory: %d bytes are charged to the program", by, half, kind, got)
			}
		}
		program.close()
		a.close()
	}
}
