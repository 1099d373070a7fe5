package main

import (
	"fmt"
	"io"
	"os"
)

// maxFile bounds the files that commands read, in bytes. Rack files and cost files are short, and
// reading a device file might never end.
const maxFile = 1 << 20

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes: it is no rack file or cost file", name, maxFile)
	}
	return data, err
}
