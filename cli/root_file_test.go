package cli

import (
	"strings"
	"testing"
)

func TestFilesHaveAnEnd(t *testing.T) {
	if _, err := readFile("/dev/zero"); err == nil || !strings.Contains(err.Error(), "no rack file") {
		t.Errorf("a device without end: %v", err)
	}
	if b, err := readFile("main.go"); err != nil || len(b) == 0 {
		t.Errorf("a file: %d bytes, %v", len(b), err)
	}
}
