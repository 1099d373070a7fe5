package apps

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// mpi runs a program over Open MPI on cn0 to cn3. below are the parameters that choose what carries
// the messages.
type mpi struct{ below []string }

var (
	ucxBelow = []string{"--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "btl", "self", "-x", "UCX_TLS=rc_v,ud_v,self", "-x", "UCX_NET_DEVICES=rxe0:1"}
	// The semicolon is of the provider's name: what makes reliable datagrams of MSG endpoints.
	fabricBelow = []string{"--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "verbs;ofi_rxm", "--mca", "btl", "self"}
)

// Ranks that wait for each other until their time is over are run again: libfabric's reliable datagrams and UCX
// acknowledge by themselves, as for pairs of programs (see pair.run). A run takes 2 s on an idle machine.
const (
	mpiPatience = "60"
	mpiAttempts = 4
)

func (m mpi) run(s *stage) {
	GinkgoHelper()
	fixture.Need("mpirun", packages)
	fixture.Need("mpicc", packages)
	program := filepath.Join(GinkgoT().TempDir(), "mpibench")
	out, err := exec.Command("mpicc", "-O2", "-Wall", "-Werror", "-o", program, "../../compose/examples/mpi/mpibench.c").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	rsh, err := filepath.Abs("../../compose/examples/mpi/rsh")
	Expect(err).NotTo(HaveOccurred())
	before := s.Counters("cn3")["sent_bytes"]
	args := []string{
		mpiPatience, "sh", "-c", `. /dev/stdin; exec nsenter --net --uts -t "$@"`, "sh", strconv.Itoa(s.Host("cn0").PID),
		"env", "RDMALAB=" + fixture.Binary(), "RDMALAB_RACK=" + s.Name, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		"mpirun", "--mca", "plm_rsh_agent", rsh, "--host", "cn0,cn1,cn2,cn3",
	}
	for range mpiAttempts {
		cmd := exec.Command("timeout", append(append(args, m.below...), program)...)
		cmd.Stdin = strings.NewReader(s.OK("env", "cn0"))
		out, err = cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != unanswered {
			break
		}
		GinkgoWriter.Printf("run again: the ranks waited for each other until their time was over; they said: %s\n", out)
	}
	Expect(err).NotTo(HaveOccurred(), string(out))
	Expect(string(out)).To(MatchRegexp(`(?s)latency: 8 bytes .*bandwidth: .*allreduce: 1000 numbers of 4 ranks`))
	Expect(s.Counters("cn3")["sent_bytes"]).To(BeNumerically(">", before+1000), "the numbers of cn3 came another way")
}
