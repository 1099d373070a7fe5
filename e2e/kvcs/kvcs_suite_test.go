// Package kvcs_test tests the store on NICs without connections on a real rack: its commands, workloads,
// and what clients see when replicas, links, NICs and the coordinator fail.
package kvcs_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

func TestKVCS(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "kvcs", Label("kvcs"))
}

var _ = BeforeSuite(fixture.Build)

const rackFile = `
onerma: {}
` + hosts

const hosts = `
hosts:
  - {name: md0, role: metadata}
  - {name: "cn[0-1]", role: compute}
  - {name: "ms[0-2]", role: memory, memory: 4MiB}
`

// stat is what `kvcs stat -o json` prints.
type stat struct {
	Replicas    []string `json:"replicas"`
	Coordinator struct {
		Changes, Fenced, Rekeyed, Expired, Left, Joined uint64
	} `json:"coordinator"`
	Hosts []struct {
		Name       string `json:"name"`
		Opened     uint64 `json:"opened"`
		Redirected uint64 `json:"redirected"`
	} `json:"hosts"`
}

func statOf(rack *fixture.Rack) (s stat) {
	GinkgoHelper()
	rack.JSON(&s, "kvcs", "stat")
	return s
}

// replicas returns the hosts whose replicas clients may use.
func replicas(rack *fixture.Rack) func() []string {
	return func() []string {
		GinkgoHelper()
		return statOf(rack).Replicas
	}
}

// redirected returns how many READs have made clients of cn0 turn to another replica.
func (s *stat) redirected() uint64 {
	for _, h := range s.Hosts {
		if h.Name == "cn0" {
			return h.Redirected
		}
	}
	return 0
}

// linearizable lets clients work on a few keys and proves that their history has an order.
func linearizable(rack *fixture.Rack) {
	GinkgoHelper()
	Expect(rack.OK("kvcs", "check", "--clients", "4", "--rounds", "60")).To(ContainSubstring("\nlinearizable: "))
}
