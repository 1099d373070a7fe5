package apps

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// Services have their disks and machines on ms0: its requests go to cn0, so that a switch that
// moves requests to ms0 lets them alone.

// noise returns n bytes.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return b
}

// iser is a disk on ms0 that tgt serves over iSER, and the tests of libiscsi for it on cn0. tgt
// reads the initiator's memory and writes it by RDMA.
type iser struct{}

func (iser) run(s *stage) {
	GinkgoHelper()
	fixture.Need("tgtd", packages)
	fixture.Need("iscsi-test-cu", packages)
	const (
		initiator, target = "iqn.2000-01.com.example:cn0", "iqn.2000-01.com.example:disk"
		// written is what the test Write10.Simple writes, by requests of 1 to 256 blocks of 512 bytes, at
		// the beginning of the disk and at its end.
		written, ends = 0xa6, 256 * 512
	)
	dir := GinkgoT().TempDir()
	GinkgoT().Setenv("TGT_IPC_SOCKET", filepath.Join(dir, "control"))
	disk, want := filepath.Join(dir, "disk"), noise(8*ends)
	Expect(os.WriteFile(disk, want, 0o600)).To(Succeed())
	defer serve(s, "tgtd", "-f", "--iser", "pool_sz_mb=128")()
	admin := func(args ...string) fixture.Result {
		return s.Run(append([]string{"exec", s.server, "--", "tgtadm", "--lld", "iser"}, args...)...)
	}
	Eventually(func() int { return admin("--mode", "sys", "--op", "show").Code }).WithTimeout(20 * time.Second).Should(BeZero())
	for _, args := range [][]string{
		{"--mode", "target", "--op", "new", "--tid", "1", "--targetname", target},
		{"--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "--backing-store", disk},
		{"--mode", "target", "--op", "bind", "--tid", "1", "--initiator-address", "ALL"},
		{"--mode", "target", "--op", "bind", "--tid", "1", "--initiator-name", initiator},
	} {
		Expect(admin(args...)).To(fixture.HaveExited(0))
	}
	// Verify10 reads blocks, and sends them back for tgt to compare with the disk. libiscsi 1.19 does
	// not initialize all memory of a second session in a process: the variable makes it zero.
	test := func(name string) {
		GinkgoHelper()
		out := s.Run("exec", "cn0", "--", "timeout", "60", "env", "MALLOC_PERTURB_=255",
			"iscsi-test-cu", "-i", initiator, "--dataloss", "-t", name, "iser://"+s.address()+"/"+target+"/1")
		Expect(out).To(fixture.HaveExited(0))
		Expect(out.Stdout).To(MatchRegexp(`tests +1 +1 +1 +0 +0`))
	}
	test("SCSI.Verify10.Simple")
	test("SCSI.Write10.Simple")
	copy(want, bytes.Repeat([]byte{written}, ends))
	copy(want[len(want)-ends:], want[:ends])
	got, err := os.ReadFile(disk)
	Expect(err).NotTo(HaveOccurred())
	Expect(bytes.Equal(got, want)).To(BeTrue(), "the disk has other bytes than were written")
}

// migration is a virtual machine of QEMU that runs on ms0 and moves to cn0, without a break that
// its program could see.
type migration struct{}

// ticker is the machine's program, a boot sector: it counts the interrupts of the clock at the
// address ticks.
var ticker = []byte{
	0x31, 0xc0, // xor ax, ax
	0x8e, 0xd8, // mov ds, ax
	0xfb,                         // sti
	0xf4,                         // hlt
	0x66, 0xff, 0x06, 0x00, 0x80, // inc dword [ticks]
	0xeb, 0xf8, // jmp to hlt
}

// ticks is an address that no firmware uses, loaded the address of bytes that the program does not
// touch.
const ticks, loaded = 0x8000, 16 << 20

func (migration) run(s *stage) {
	GinkgoHelper()
	fixture.Need("qemu-system-x86_64", packages)
	dir := GinkgoT().TempDir()
	bytesAt := func(name string) string { return filepath.Join(dir, name) }
	sector := append(append(ticker[:len(ticker):len(ticker)], make([]byte, 510-len(ticker))...), 0x55, 0xaa)
	want := noise(8 << 20)
	Expect(os.WriteFile(bytesAt("boot"), sector, 0o600)).To(Succeed())
	Expect(os.WriteFile(bytesAt("loaded"), want, 0o600)).To(Succeed())
	uri := "rdma:" + s.Host("cn0").IPv4 + ":4444"

	to, stop := boot(s, "cn0", dir, "-incoming", uri)
	defer stop()
	from, stop := boot(s, s.server, dir, "-device", fmt.Sprintf("loader,file=%s,addr=%#x,force-raw=on", bytesAt("loaded"), loaded))
	defer stop()
	Eventually(func() int { return s.Listeners("cn0") }).WithTimeout(20 * time.Second).Should(BeNumerically(">", 0))
	Eventually(from.ticks).WithTimeout(20 * time.Second).Should(BeNumerically(">", 0))
	before := from.ticks()
	from.ask(nil, "migrate", "uri", uri)
	Eventually(func() string { return from.status("query-migrate") }).WithTimeout(60 * time.Second).Should(Or(Equal("completed"), Equal("failed")))
	Expect(from.status("query-migrate")).To(Equal("completed"))
	Eventually(func() string { return to.status("query-status") }).WithTimeout(20 * time.Second).Should(Equal("running"))
	there := to.ticks()
	Expect(there).To(BeNumerically(">=", before))
	Eventually(to.ticks).WithTimeout(20 * time.Second).Should(BeNumerically(">", there))
	to.ask(nil, "pmemsave", "val", loaded, "size", len(want), "filename", bytesAt("saved"))
	got, err := os.ReadFile(bytesAt("saved"))
	Expect(err).NotTo(HaveOccurred())
	Expect(bytes.Equal(got, want)).To(BeTrue(), "the machine has other bytes in its memory than before")
}

// machine is a virtual machine and the connection to its monitor.
type machine struct {
	to   net.Conn
	from *json.Decoder
}

// boot starts a machine on a host. stop ends it.
func boot(s *stage, host, dir string, args ...string) (m machine, stop func()) {
	GinkgoHelper()
	socket := filepath.Join(dir, host)
	end := s.Start(append([]string{
		"exec", host, "--", "timeout", "150", "qemu-system-x86_64", "-M", "pc", "-accel", "tcg", "-m", "64M", "-nodefaults", "-display", "none",
		"-drive", "if=floppy,format=raw,readonly=on,file=" + filepath.Join(dir, "boot"), "-qmp", "unix:" + socket + ",server=on,wait=off",
	}, args...)...)
	Eventually(func() (err error) {
		m.to, err = net.Dial("unix", socket)
		return err
	}).WithTimeout(20 * time.Second).Should(Succeed())
	m.from = json.NewDecoder(m.to)
	m.ask(nil, "qmp_capabilities")
	return m, func() {
		_ = m.to.Close() // the machine ends as well
		end()
	}
}

// ask executes a command of the monitor, with its arguments by name, and decodes the answer into v.
func (m machine) ask(v any, command string, args ...any) {
	GinkgoHelper()
	named := map[string]any{}
	for i := 0; i < len(args); i += 2 {
		named[args[i].(string)] = args[i+1]
	}
	Expect(json.NewEncoder(m.to).Encode(map[string]any{"execute": command, "arguments": named})).To(Succeed())
	for {
		var answer struct {
			Return json.RawMessage `json:"return"`
			Error  struct {
				Desc string `json:"desc"`
			} `json:"error"`
		}
		err := m.from.Decode(&answer)
		if answer.Error.Desc != "" {
			err = errors.New(command + ": " + answer.Error.Desc)
		}
		Expect(err).NotTo(HaveOccurred())
		if answer.Return != nil { // else it is an event
			if v != nil {
				Expect(json.Unmarshal(answer.Return, v)).To(Succeed())
			}
			return
		}
	}
}

// ticks returns how often the machine's program has counted.
func (m machine) ticks() (n uint32) {
	GinkgoHelper()
	var line string
	m.ask(&line, "human-monitor-command", "command-line", fmt.Sprintf("xp /1xw %#x", ticks))
	_, err := fmt.Sscanf(line, "%x: 0x%x", new(uint64), &n)
	Expect(err).NotTo(HaveOccurred(), line)
	return n
}

// status returns the answer to a command that asks for a status.
func (m machine) status(command string) string {
	GinkgoHelper()
	var answer struct {
		Status string `json:"status"`
	}
	m.ask(&answer, command)
	return answer.Status
}
