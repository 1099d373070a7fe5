// Package image writes images for container runtimes without an engine or a registry: an archive as `docker save`
// makes it, with one layer.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"time"
)

// Name is the name of the image of this module, as in the manifests.
const Name = "rdmalab.local/kube:dev"

// Write writes an image to a file. files maps the places in it to those of the files. All belong to root, and have
// the mode of the file.
func Write(out, name string, entrypoint []string, files map[string]string) error {
	layer, err := layerOf(files)
	if err != nil {
		return err
	}
	type object = map[string]any
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH, "os": "linux", "config": object{"Entrypoint": entrypoint, "WorkingDir": "/", "Env": []string{"PATH=/:/bin:/usr/bin"}},
		"rootfs": object{"type": "layers", "diff_ids": []string{"sha256:" + hash(layer)}}, "history": []object{{"created": "1970-01-01T00:00:00Z"}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]object{{"Config": hash(config) + ".json", "RepoTags": []string{name}, "Layers": []string{hash(layer) + "/layer.tar"}}})
	if err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close() // the error of the last write is returned
	w := tar.NewWriter(f)
	for _, part := range []struct {
		name string
		data []byte
	}{{hash(config) + ".json", config}, {hash(layer) + "/layer.tar", layer}, {"manifest.json", manifest}} {
		if err := put(w, part.name, part.data, 0o644); err != nil {
			return err
		}
	}
	return w.Close()
}

func put(w *tar.Writer, name string, data []byte, mode int64) error {
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: time.Unix(0, 0)})
	if err == nil {
		_, err = io.Copy(w, bytes.NewReader(data))
	}
	return err
}

func layerOf(files map[string]string) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data, err := os.ReadFile(files[name])
		if err != nil {
			return nil, err
		}
		st, err := os.Stat(files[name])
		if err != nil {
			return nil, err
		}
		if err := put(w, name, data, int64(st.Mode().Perm())); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func hash(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}
