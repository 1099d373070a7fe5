// Package nictable_test tests the store whose GETs the NIC of its server executes, on a real rack: with
// Debian's clients of memcached's protocol, and while the server is dead.
package nictable_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

func TestNICTable(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "nictable", Label("nictable"))
}

var _ = BeforeSuite(fixture.Build)

const rackFile = `
hosts:
  - {name: md0, role: metadata}
  - {name: "cn[0-1]", role: compute}
`
