//go:build chromium

package web

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

func TestWeb(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "page")
}

var _ = BeforeSuite(fixture.Build)
