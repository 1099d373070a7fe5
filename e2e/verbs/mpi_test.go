package verbs

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// fourHosts is a rack for a program with four ranks.
const fourHosts = `
hosts:
  - {name: "cn[0-3]", role: compute}
`

var _ = Describe("a program over MPI", func() {
	It("runs on four hosts, also where a packet in a hundred is lost", func() {
		need("mpirun")
		need("mpicc")
		program := filepath.Join(GinkgoT().TempDir(), "mpibench")
		out, err := exec.Command("mpicc", "-O2", "-Wall", "-Werror", "-o", program, "../../compose/examples/mpi/mpibench.c").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		rsh, err := filepath.Abs("../../compose/examples/mpi/rsh")
		Expect(err).NotTo(HaveOccurred())
		rack := fixture.Up(fourHosts)
		run := func() {
			GinkgoHelper()
			before := rack.Counters("cn3")["rdma_sends"]
			cmd := exec.Command("timeout", "120", "sh", "-c", `. /dev/stdin; exec nsenter --net --uts -t "$@"`, "sh", strconv.Itoa(rack.Host("cn0").PID),
				"env", "RDMALAB="+fixture.Binary(), "RDMALAB_RACK="+rack.Name, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
				"mpirun", "--mca", "plm_rsh_agent", rsh, "--host", "cn0,cn1,cn2,cn3", "--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "btl", "self",
				"-x", "UCX_TLS=rc_v,ud_v,self", "-x", "UCX_NET_DEVICES=rxe0:1", program)
			cmd.Stdin = strings.NewReader(rack.OK("env", "cn0"))
			out, err := cmd.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(out))
			Expect(string(out)).To(MatchRegexp(`(?s)latency: 8 bytes .*bandwidth: .*allreduce: 1000 numbers of 4 ranks`))
			Expect(rack.Counters("cn3")["rdma_sends"]).To(BeNumerically(">", before), "the numbers of cn3 came another way")
		}
		run()
		rack.OK("inject", "loss", "1%", "--class", "roce", "--link", "cn1")
		DeferCleanup(func() { rack.OK("heal") })
		run()
	})
})
