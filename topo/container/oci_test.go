package container

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// Every descriptor of the layout points to a blob with this digest and length, and the config is the image's.
func TestOCILayout(t *testing.T) {
	config, layer := []byte(`{"architecture":"arm64"}`), []byte("layer")
	out, err := archiveOf(config, layer, "arm64")
	again, errAgain := archiveOf(config, layer, "arm64")
	if err := errors.Join(err, errAgain); err != nil || !bytes.Equal(out, again) {
		t.Fatal("not the same bytes", err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(out)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	get := func(d ociDescriptor) []byte {
		t.Helper()
		b := files["blobs/sha256/"+d.Digest[len("sha256:"):]]
		if len(b) != d.Size || "sha256:"+hash(b) != d.Digest {
			t.Errorf("%+v has %d bytes", d, len(b))
		}
		return b
	}
	var index struct {
		Manifests []ociDescriptor `json:"manifests"`
	}
	var manifest struct {
		Config ociDescriptor   `json:"config"`
		Layers []ociDescriptor `json:"layers"`
	}
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 || index.Manifests[0].Platform["architecture"] != "arm64" {
		t.Fatalf("%+v, %v", index, err)
	}
	if err := json.Unmarshal(get(index.Manifests[0]), &manifest); err != nil || len(manifest.Layers) != 1 {
		t.Fatalf("%+v, %v", manifest, err)
	}
	if !bytes.Equal(get(manifest.Config), config) || !bytes.Equal(get(manifest.Layers[0]), layer) || string(files["oci-layout"]) != `{"imageLayoutVersion":"1.0.0"}` {
		t.Error("config, layer or layout")
	}
	var older []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(files["manifest.json"], &older); err != nil || len(older) != 1 || len(older[0].Layers) != 1 {
		t.Fatalf("%+v, %v", older, err)
	}
	if !bytes.Equal(files[older[0].Config], config) || !bytes.Equal(files[older[0].Layers[0]], layer) || older[0].RepoTags[0] != ImageName {
		t.Errorf("manifest.json names %+v", older[0])
	}
}

// An archive is whole blocks, of which the last two are empty; tar refuses another one.
func TestArchiveHasItsEnd(t *testing.T) {
	b, err := tarOf(file{"a", 0o644, []byte("x")})
	if err != nil || len(b) != 4*512 || !bytes.Equal(b[2*512:], make([]byte, 2*512)) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// The image is for the processor of the program, not for that of the machine that makes it.
func TestProcessorOfTheProgram(t *testing.T) {
	head := make([]byte, 64) // an ELF header without segments: class, data, version; type, machine, version
	copy(head, "\x7fELF\x02\x01\x01")
	copy(head[16:], "\x02\x00\xb7\x00\x01\x00\x00\x00")
	head[52] = 64
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, head, 0o700); err != nil {
		t.Fatal(err)
	}
	i, err := NewImage(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := i.WriteTo(&out); err != nil || !bytes.Contains(out.Bytes(), []byte(`"architecture":"arm64"`)) {
		t.Errorf("the archive says nothing of the processor, %v", err)
	}
}
