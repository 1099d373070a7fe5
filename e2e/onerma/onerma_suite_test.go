// Package onerma_test tests the NICs without connections on a real rack: measurements whose bytes are
// compared, faults of single operations, and what a program sees when hosts, NICs and links fail.
package onerma_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

func TestOneRMA(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "onerma", Label("onerma"))
}

var _ = BeforeSuite(fixture.Build)

const rackFile = `
onerma: {}
` + hosts

const overMemory = `
cable: memory
onerma: {}
` + hosts

const hosts = `
hosts:
  - {name: "cn[0-1]", role: compute}
  - {name: ms0, role: memory, memory: 16MiB}
`

// solo is the part of `status -o json` that describes a 1RMA NIC.
type solo struct {
	Hosts []struct {
		Name   string `json:"name"`
		Daemon struct {
			OneRMA *struct {
				Up          bool   `json:"up"`
				Incarnation uint32 `json:"incarnation"`
				Regions     int    `json:"regions"`
				Requested   int    `json:"requestedBytes"`
			} `json:"onerma"`
		} `json:"daemon"`
	} `json:"hosts"`
}

// incarnation returns the number of the incarnation of a host's 1RMA NIC; 0 if the NIC is down.
func incarnation(rack *fixture.Rack, host string) func() uint32 {
	return func() uint32 {
		GinkgoHelper()
		var s solo
		rack.JSON(&s, "status")
		for _, h := range s.Hosts {
			if h.Name == host && h.Daemon.OneRMA != nil && h.Daemon.OneRMA.Up {
				return h.Daemon.OneRMA.Incarnation
			}
		}
		return 0
	}
}
