package nictable_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// port is memcached's.
const port = "11211"

// item is what `nictable item -o json` prints.
type item struct {
	Flags uint32 `json:"flags"`
	Data  []byte `json:"data"`
}

var _ = Describe("memcached's protocol", Ordered, func() {
	var rack *fixture.Rack
	// client runs a program of libmemcached on a host.
	client := func(host, program string, args ...string) fixture.Result {
		GinkgoHelper()
		return rack.Run(append([]string{"exec", host, "--", "timeout", "60", program, "--servers=md0:" + port}, args...)...)
	}

	BeforeAll(func() {
		if _, err := exec.LookPath("memccapable"); err != nil {
			Skip("memccapable is not installed: apt-get install libmemcached-tools")
		}
		rack = fixture.Up(rackFile)
		Expect(rack.OK("nictable", "start", "--items", "100", "--value", "65792", "--memcached", ":"+port)).
			To(Equal("made a table for 100 keys with values of up to 65792 bytes\nmemcached's text protocol is served on :" + port + "\n"))
	})

	It("passes the tests of libmemcached", func() {
		res := rack.Run("exec", "cn0", "--", "timeout", "120", "memccapable", "-a", "-h", "md0", "-p", port, "-t", "30")
		Expect(res).To(fixture.HaveExited(0))
		Expect(res.Stdout).To(ContainSubstring("All tests passed"))
		Expect(res.Stdout).To(MatchRegexp(`ascii cas noreply +\[pass\]`))
	})

	It("stores items from 64 bytes to 64 KiB, which the NIC gives to clients", func() {
		Expect(client("cn0", "memcflush")).To(fixture.HaveExited(0))
		dir := GinkgoT().TempDir()
		random := rand.NewChaCha8([32]byte{7})
		for name, n := range map[string]int{"small": 64, "page": 4096, "large": 64 << 10} {
			data := make([]byte, n)
			_, _ = random.Read(data) // it does not fail
			path := filepath.Join(dir, name)
			Expect(os.WriteFile(path, data, 0o600)).To(Succeed())
			Expect(client("cn0", "memccp", path)).To(fixture.HaveExited(0))
			back := path + ".back"
			Expect(client("cn1", "memccat", "--file="+back, name)).To(fixture.HaveExited(0))
			Expect(os.ReadFile(back)).To(Equal(data))
			var i item
			rack.JSON(&i, "nictable", "item", name, "--from", "cn1")
			Expect(bytes.Equal(i.Data, data)).To(BeTrue(), "%s by RDMA", name)
		}
		Expect(client("cn0", "memcstat").Stdout).To(MatchRegexp(`curr_items: 3\b`))
		Expect(client("cn0", "memcrm", "small")).To(fixture.HaveExited(0))
		Expect(client("cn0", "memccat", "small").Stdout).To(BeEmpty())
		Expect(rack.Run("nictable", "item", "small").Stderr).To(ContainSubstring("no such key"))
		Expect(os.WriteFile(filepath.Join(dir, "more"), make([]byte, 65792), 0o600)).To(Succeed())
		Expect(client("cn0", "memccp", filepath.Join(dir, "more"))).NotTo(fixture.HaveExited(0))
		Expect(client("cn0", "memccp", "--expire=60", filepath.Join(dir, "small"))).NotTo(fixture.HaveExited(0))
	})

	It("serves the items again when a later process has taken the table over", func() {
		rack.OK("crash", "md0", "--app")
		Expect(client("cn0", "memccat", "page")).NotTo(fixture.HaveExited(0))
		rack.OK("restart", "md0", "--app")
		Expect(rack.OK("nictable", "start", "--memcached", ":"+port)).To(HavePrefix("took over a table of 2 keys"))
		Expect(client("cn0", "memcexist", "page")).To(fixture.HaveExited(0))
		Expect(client("cn0", "memcflush")).To(fixture.HaveExited(0))
		Expect(client("cn0", "memcexist", "page")).NotTo(fixture.HaveExited(0))
	})

	It("serves a client's host, with GETs that the server's NIC answers", func() {
		Expect(rack.OK("nictable", "front", "--from", "cn0")).To(ContainSubstring("memcached's text protocol is served on :" + port))
		res := rack.Run("exec", "cn0", "--", "timeout", "120", "memccapable", "-a", "-h", "localhost", "-p", port, "-t", "30")
		Expect(res).To(fixture.HaveExited(0))
		Expect(res.Stdout).To(ContainSubstring("All tests passed"))
		gets := func() string { return regexp.MustCompile(`cmd_get: \d+`).FindString(client("cn0", "memcstat").Stdout) } // of the server's process
		before := gets()
		Expect(before).NotTo(BeEmpty())
		through := func(program string, args ...string) fixture.Result {
			return rack.Run(append([]string{"exec", "cn0", "--", program, "--servers=localhost:" + port}, args...)...)
		}
		path := filepath.Join(GinkgoT().TempDir(), "through")
		Expect(os.WriteFile(path, []byte("by the NIC"), 0o600)).To(Succeed())
		Expect(through("memccp", path)).To(fixture.HaveExited(0))
		for range 10 {
			Expect(through("memccat", "through").Stdout).To(ContainSubstring("by the NIC"))
		}
		Expect(gets()).To(Equal(before))
		Expect(rack.OK("nictable", "front", "--off")).To(Equal("the front has ended\n"))
		Expect(rack.Run("nictable", "front", "--listen", "11211").Stderr).To(ContainSubstring("use a TCP address of the host like :11211"))
	})

	It("answers memaslap as memcached does", func() {
		rack.OK("nictable", "stop")
		type number struct{ Value float64 }
		var r struct {
			Rows []struct{ Keys, Gets, Wrong, Missed number }
		}
		rack.JSON(&r, "experiment", "memcached-gets", "--on", "rack", "--quick", "--clients", "4", "--to", "md0")
		Expect(r.Rows).To(HaveLen(3))
		for _, row := range r.Rows {
			Expect(row.Wrong.Value + row.Missed.Value).To(BeZero())
			Expect(row.Gets.Value).To(BeNumerically("==", 20_000))
			Expect(row.Keys.Value).To(BeNumerically(">=", 20_000))
		}
		rack.OK("nictable", "start", "--items", "100", "--value", "65792", "--memcached", ":"+port)
	})

	It("says what is wrong with an address", func() {
		Expect(rack.Run("nictable", "start", "--memcached", "11211").Stderr).To(ContainSubstring("use a TCP address of the host like :11211"))
		res := rack.Run("nictable", "start", "--memcached", "192.0.2.1:"+port)
		Expect(res).To(fixture.HaveExited(1))
		Expect(strings.ToLower(res.Stderr)).To(ContainSubstring("does not serve memcached's protocol on 192.0.2.1"))
	})
})
