package apps

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// ceph is a cluster with its monitor on cn1 and its OSDs on cn2 and cn3. cn0 writes objects; the host
// of an OSD crashes meanwhile and comes back, and all objects are as they were written.
type ceph struct{}

// cluster is a cluster that runs.
type cluster struct {
	s    *stage
	dir  string // the files of all daemons
	osds [2]func() fixture.Result
}

func (ceph) run(s *stage) {
	GinkgoHelper()
	for _, p := range []string{"ceph-mon", "ceph-osd", "monmaptool", "ceph", "rados"} {
		if _, err := exec.LookPath(p); err != nil {
			Skip(p + " is not installed: apt-get install ceph-mon ceph-osd ceph-common")
		}
	}
	c := cluster{s: s, dir: GinkgoT().TempDir()}
	c.monitor()
	for i := range c.osds {
		id := strings.TrimSpace(c.tool("ceph", "osd", "new", uuid(i)))
		Expect(id).To(Equal(strconv.Itoa(i)))
		Expect(s.Run(c.args(osdHost(i), "ceph-osd", "-i", id, "--mkfs", "--osd-uuid", uuid(i), "--no-mon-config")...)).To(fixture.HaveExited(0))
		c.start(i)
	}
	Eventually(c.up).Should(Equal(2))
	c.tool("ceph", "osd", "pool", "create", "p", "8")

	object := noise(8 << 20)
	sent := s.Counters("cn0")["sent_bytes"]
	c.put("before", object)
	Expect(s.Counters("cn0")["sent_bytes"]-sent).To(BeNumerically(">", len(object)), "it went another way")
	ended := make(chan fixture.Result, 1)
	go func() {
		defer GinkgoRecover()
		ended <- s.Run(c.bench("20", "write", "-b", "65536", "--no-cleanup")...)
	}()
	Eventually(c.objects).Should(BeNumerically(">", 10))
	s.OK("crash", "cn3")
	c.osds[1]()
	Eventually(c.up).Should(Equal(1))
	c.put("during", object)
	var bench fixture.Result
	Eventually(ended).WithTimeout(100 * time.Second).Should(Receive(&bench))
	Expect(bench).To(fixture.HaveExited(0))
	s.OK("restart", "cn3")
	c.start(1)
	Eventually(c.up).Should(Equal(2))
	Expect(c.get("before")).To(BeTrue(), "the object of before the crash is another one")
	Expect(c.get("during")).To(BeTrue(), "the object of the time of the crash is another one")
	Expect(s.Run(c.bench("60", "seq")...)).To(fixture.HaveExited(0)) // it reads all that was written, and compares
}

// uuid is that of an OSD.
func uuid(osd int) string { return "5c2f7f0a-64f5-4a2b-8f0a-7b8e1f0c4d0" + strconv.Itoa(osd) }

// osdHost is the host of an OSD.
func osdHost(osd int) string { return "cn" + strconv.Itoa(osd+2) }

// args are the arguments that run a program of Ceph on a host.
func (c *cluster) args(host string, program ...string) []string {
	conf := filepath.Join(c.dir, "ceph.conf")
	return append([]string{"exec", host, "--", "timeout", "300", program[0], "-c", conf}, program[1:]...)
}

// tool runs a program of Ceph on cn0, which must succeed.
func (c *cluster) tool(program ...string) string {
	GinkgoHelper()
	out := c.s.Run(c.args("cn0", program...)...)
	Expect(out).To(fixture.HaveExited(0))
	return out.Stdout
}

// monitor makes the monitor and starts it.
func (c *cluster) monitor() {
	GinkgoHelper()
	text, err := os.ReadFile("testdata/ceph.conf")
	Expect(err).NotTo(HaveOccurred())
	address := c.s.Host("cn1").IPv4
	conf := strings.NewReplacer("ADDRESS", address, "FOLDER", c.dir).Replace(string(text))
	Expect(os.WriteFile(filepath.Join(c.dir, "ceph.conf"), []byte(conf), 0o600)).To(Succeed())
	for _, folder := range []string{"mon-a", "osd-0", "osd-1"} {
		Expect(os.Mkdir(filepath.Join(c.dir, folder), 0o700)).To(Succeed())
	}
	_, id, _ := strings.Cut(conf, "fsid = ")
	id, _, _ = strings.Cut(id, "\n")
	monmap := filepath.Join(c.dir, "monmap")
	out, err := exec.Command("monmaptool", "--create", "--addv", "a", "[v2:"+address+":3300,v1:"+address+":6789]", "--fsid", id, monmap).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	Expect(c.s.Run(c.args("cn1", "ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)...)).To(fixture.HaveExited(0))
	c.s.Start(c.args("cn1", "ceph-mon", "-f", "-i", "a")...)
}

// start starts an OSD.
func (c *cluster) start(osd int) {
	GinkgoHelper()
	c.osds[osd] = c.s.Start(c.args(osdHost(osd), "ceph-osd", "-f", "-i", strconv.Itoa(osd))...)
}

// up is how many OSDs are up.
func (c *cluster) up() int {
	GinkgoHelper()
	_, n, _ := strings.Cut(c.tool("ceph", "osd", "stat"), " osds: ")
	n, _, _ = strings.Cut(n, " up")
	count, _ := strconv.Atoi(n) // 0 while there are none
	return count
}

// bench are the arguments of `rados bench` for some seconds.
func (c *cluster) bench(seconds string, args ...string) []string {
	return c.args("cn0", append([]string{"rados", "bench", "-p", "p", seconds, args[0], "-t", "4"}, args[1:]...)...)
}

// objects is how many objects there are.
func (c *cluster) objects() int {
	GinkgoHelper()
	return strings.Count(c.tool("rados", "-p", "p", "ls"), "\n")
}

// put writes an object.
func (c *cluster) put(name string, object []byte) {
	GinkgoHelper()
	file := filepath.Join(c.dir, "object")
	Expect(os.WriteFile(file, object, 0o600)).To(Succeed())
	c.tool("rados", "-p", "p", "put", name, file)
}

// get reports whether an object is what put wrote last.
func (c *cluster) get(name string) bool {
	GinkgoHelper()
	want, err := os.ReadFile(filepath.Join(c.dir, "object"))
	Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(c.dir, "read")
	c.tool("rados", "-p", "p", "get", name, file)
	got, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	return bytes.Equal(got, want)
}
