package container

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"
)

// ImageName is the name of the image that hosts run.
const ImageName = "rdmalab:dev"

// binaryPath is the path of the one program in the image.
const binaryPath = "rdmalab"

// LabelImage is the label of this project's images. Its value is the program's hash.
const LabelImage = "rdmalab.binary"

// maxBinary bounds a program, in bytes.
const maxBinary = 512 << 20

// Image is an image that contains only one static program. It is made without an engine. The same
// program gives the same bytes.
type Image struct {
	// ID is the hash of the image's configuration, Program the hash of the program. Both are in
	// hexadecimal.
	ID, Program string
	archive     []byte
}

// imageConfig is the configuration of an image. Its hash is the image's ID.
type imageConfig struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Created      string `json:"created"`
	Config       struct {
		Entrypoint []string          `json:"Entrypoint"`
		Env        []string          `json:"Env"`
		Labels     map[string]string `json:"Labels"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	History []struct {
		Created   string `json:"created"`
		CreatedBy string `json:"created_by"`
	} `json:"history"`
}

// NewImage makes the image of the static program at path.
func NewImage(path string) (*Image, error) {
	arch, err := checkStatic(path)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the file is only read
	program, err := io.ReadAll(io.LimitReader(f, maxBinary))
	if err != nil {
		return nil, err
	}
	layer, err := tarOf(file{binaryPath, 0o755, program})
	if err != nil {
		return nil, err
	}
	c := imageConfig{Architecture: arch, OS: "linux", Created: epoch.Format(time.RFC3339)}
	c.Config.Entrypoint = []string{"/" + binaryPath}
	c.Config.Env = []string{"PATH=/"}
	c.Config.Labels = map[string]string{
		LabelImage: hash(program), "org.opencontainers.image.title": "rdmalab",
		"org.opencontainers.image.source": "https://github.com/rdmalab/rdmalab", "org.opencontainers.image.licenses": "Apache-2.0",
	}
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{"sha256:" + hash(layer)}
	c.History = append(c.History, struct {
		Created   string `json:"created"`
		CreatedBy string `json:"created_by"`
	}{c.Created, "rdmalab image"})
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	archive, err := archiveOf(config, layer, arch)
	return &Image{ID: hash(config), Program: hash(program), archive: archive}, err
}

// checkStatic returns the processor that a program is for, in Go's spelling. It returns an error if the
// file at path is no ELF program, or one that needs a dynamic loader.
func checkStatic(path string) (arch string, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("%s is no program: %w", path, err)
	}
	defer f.Close() // the file is only read
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			if target, err := os.Readlink(path); err == nil {
				path = target // path may be /proc/self/exe, so target is the path of the caller's program
			}
			return "", fmt.Errorf("%s is not static, and an image with nothing else cannot run it: build it with `make build`", path)
		}
	}
	switch f.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	default:
		return runtime.GOARCH, nil
	}
}

// epoch is the time stamp of an image and of its files, so that images are reproducible.
var epoch = time.Unix(0, 0).UTC()

type file struct {
	name string
	mode int64
	data []byte
}

// tarOf returns an archive of files. It does not depend on time, user or path.
func tarOf(files ...file) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: epoch, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close() // before Bytes: it writes the end of the archive
	return b.Bytes(), err
}

func hash(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// WriteTo writes the image as an archive (see archiveOf).
func (i *Image) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(i.archive)
	return int64(n), err
}

// current returns the engine's ID of the image called ImageName, and the hash of the program in
// it; "" if there is no such image.
func (e *Engine) current(ctx context.Context) (id, program string, err error) {
	var image struct {
		ID     string `json:"Id"`
		Config struct {
			Labels map[string]string `json:"Labels"`
		} `json:"Config"`
	}
	err = e.call(ctx, http.MethodGet, "/images/"+ImageName+"/json", nil, nil, &image)
	if errors.Is(err, ErrNotFound) {
		return "", "", nil
	}
	return image.ID, image.Config.Labels[LabelImage], err
}

// maxLoads bounds how often Engine.Ensure loads an image, because after each load the image of
// another program may have taken the name.
const maxLoads = 5

// Ensure makes sure that the image that the container engine calls ImageName has the program of i,
// and returns the engine's ID of that image. If the engine's image has another program or there is
// none, Ensure loads i, and removes the image that had the name before, unless a container uses it.
func (e *Engine) Ensure(ctx context.Context, i *Image) (string, error) {
	before := ""
	for range maxLoads {
		id, program, err := e.current(ctx)
		if err != nil {
			return "", err
		}
		if program == i.Program {
			return id, e.dropImage(ctx, before)
		}
		before = cmp.Or(before, id)
		if err := e.load(ctx, i); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%s is replaced by another program's image again and again: is another rdmalab at work?", ImageName)
}

// dropImage removes the image with this ID; "" means none. It is no error if the engine refuses
// that because the image is in use, or if there is no such image.
func (e *Engine) dropImage(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	return pardon(e.call(ctx, http.MethodDelete, "/images/"+url.PathEscape(id), nil, nil, nil), http.StatusConflict, http.StatusNotFound)
}

func (e *Engine) load(ctx context.Context, i *Image) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	resp, err := e.do(ctx, http.MethodPost, "/images/load", url.Values{"quiet": {"1"}}, "application/x-tar", bytes.NewReader(i.archive))
	if err != nil {
		return fmt.Errorf("load image: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("load image: %w", err)
	}
	// The engine answers with status 200 and reports failures as lines of the answer.
	for line := range strings.Lines(string(text)) {
		var said struct {
			Error string `json:"error"`
		}
		if json.Unmarshal([]byte(line), &said) == nil && said.Error != "" {
			return fmt.Errorf("load image: engine: %s", said.Error)
		}
	}
	return nil
}
