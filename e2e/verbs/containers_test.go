package verbs

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// contained runs a program as a container of a user's own does: with the files of image alone, the
// folder of sockets at /rack, no network, processes of its own, and one variable. groups are those
// of a user who is not root; none: it is root.
func contained(rack *fixture.Rack, image, host, groups, program string) fixture.Result {
	GinkgoHelper()
	user := ""
	if groups != "" {
		user = fmt.Sprintf("--userspec=%d:%d --groups=%s", userID, userID, groups)
	}
	script := fmt.Sprintf("mount --bind /run/rdmalab/%s/sock %s/rack && mount -t proc proc %[2]s/proc && "+
		"exec env -i /usr/sbin/chroot %[4]s %[2]s /bin/env LD_PRELOAD=/rack/%[3]s.so /bin/%[5]s",
		rack.Name, image, host, user, program)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "sh", "-c", script)
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // the exit status says it
	res := fixture.Result{Args: []string{"in a container on", host + ":", program}, Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
	GinkgoWriter.Println(res)
	return res
}

// plain runs a program as a container that knows nothing of rdmalab does: with the files of image alone, no
// network, and no preloaded library. Only /sys is the host's, as the daemon writes it; "": there is none.
func plain(rack *fixture.Rack, image, host, program string) fixture.Result {
	GinkgoHelper()
	script := fmt.Sprintf("exec env -i /usr/sbin/chroot %s /bin/%s", image, program)
	if host != "" {
		script = fmt.Sprintf("mount --bind -o ro /run/rdmalab/%s/sock/%s.sys %s/sys && %s", rack.Name, host, image, script)
	}
	out, err := exec.Command("unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "sh", "-c", script).CombinedOutput()
	res := fixture.Result{Args: []string{"in a plain container:", program}, Stdout: string(out)}
	if err != nil {
		res.Code = 1
	}
	GinkgoWriter.Println(res)
	return res
}

var _ = Describe("containers of a user's own", Ordered, func() {
	var rack *fixture.Rack
	var image string
	BeforeAll(func() {
		rack = fixture.Up(fmt.Sprintf("group: %d\n", groupID) + fixture.Small)
		image = fixture.RDMAPrograms("env", "ibv_devinfo", "rping")
	})

	It("have the NIC of a host by the folder of sockets and one variable", func() {
		out := contained(rack, image, "cn0", "", "ibv_devinfo -v")
		Expect(out).To(fixture.HaveExited(0))
		Expect(out.Stdout).To(ContainSubstring("PORT_ACTIVE"))
		Expect(out.Stdout).To(ContainSubstring("::ffff:" + rack.Host("cn0").IPv4 + ", RoCE v2"))
		Expect(out.Stdout).To(ContainSubstring(ownClock), "our provider is in the folder of sockets")
		Expect(contained(rack, image, "cn1", "", "ibv_devinfo -v").Stdout).To(ContainSubstring("::ffff:" + rack.Host("cn1").IPv4))
	})

	DescribeTable("connect to each other without any network", func(groups string) {
		ended := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			ended <- contained(rack, image, "ms0", groups, "rping -s -C 3 -V")
		}()
		Eventually(func() int { return rack.Listeners("ms0") }).Should(Equal(1))
		client := contained(rack, image, "cn0", groups, "rping -c -v -V -C 3 -a "+rack.Host("ms0").IPv4)
		Expect(client).To(fixture.HaveExited(0))
		Expect(client.Stdout).To(ContainSubstring("ping data: rdma-ping-2"))
		Eventually(ended).WithTimeout(2 * time.Minute).Should(Receive(fixture.HaveExited(0)))
		Eventually(func() int { return rack.Listeners("ms0") }).Should(BeZero())
	},
		Entry("as root", ""),
		Entry("as a user of the group", fmt.Sprint(groupID)),
	)

	It("have no NIC as a user who is not in the group", func() {
		Expect(contained(rack, image, "cn0", fmt.Sprint(groupID+1), "ibv_devinfo").Code).NotTo(BeZero())
	})

	It("find the NIC by sysfs alone, without the preloaded library", func() {
		fixture.Need("gcc", "gcc")
		dir := GinkgoT().TempDir()
		for _, folder := range []string{"bin", "sys"} {
			Expect(os.Mkdir(filepath.Join(dir, folder), 0o755)).To(Succeed())
		}
		out, err := exec.Command("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-o", filepath.Join(dir, "bin", "sysfs"), "testdata/sysfs.c").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(plain(rack, dir, "", "sysfs")).NotTo(fixture.HaveExited(0), "without the tree there is no device")
		for _, host := range []string{"cn0", "cn1"} {
			r := plain(rack, dir, host, "sysfs")
			Expect(r).To(fixture.HaveExited(0))
			b := netip.MustParseAddr(rack.Host(host).IPv4).As4()
			Expect(r.Stdout).To(MatchRegexp(`(?m)^device rxe0 node_type 1: CA parent rack0$`))
			Expect(r.Stdout).To(MatchRegexp(`(?m)^port 1 4: ACTIVE, 5: LinkUp, Ethernet, 25 Gb/sec `))
			Expect(r.Stdout).To(ContainSubstring(fmt.Sprintf("gid 0 0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x RoCE v2 rack0\n", b[0], b[1], b[2], b[3])))
		}
		rack.OK("link", "cn0", "down")
		DeferCleanup(func() { rack.OK("link", "cn0", "up") })
		Eventually(func() string { return plain(rack, dir, "cn0", "sysfs").Stdout }).WithTimeout(20 * time.Second).Should(ContainSubstring("port 1 1: DOWN"))
	})

	It("have none by the name of a host that is not there", func() {
		Expect(contained(rack, image, "cn7", "", "ibv_devinfo").Code).NotTo(BeZero())
	})
})
