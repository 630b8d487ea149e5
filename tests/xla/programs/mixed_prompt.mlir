module @mlxcel {
func.func public @main(%1: tensor<205xi32>,
    %2: tensor<576x32xf32> {tf.aliasing_output = 0 : i32},
    %3: tensor<576x32xf32> {tf.aliasing_output = 1 : i32},
    %4: tensor<3x192xf32> {tf.aliasing_output = 2 : i32},
    %5: tensor<3x256xf32> {tf.aliasing_output = 3 : i32},
    %11: tensor<96x64xf32>,
    %17: tensor<8x64xf32>,
    %22: tensor<8xf32>,
    %120: tensor<512x64xui8>,
    %121: tensor<512x2xbf16>,
    %122: tensor<512x2xbf16>,
    %146: tensor<512x32xui8>,
    %147: tensor<512x1xbf16>,
    %148: tensor<512x1xbf16>,
    %173: tensor<256xf32>,
    %215: tensor<2xf32>)
    -> (tensor<576x32xf32>, tensor<576x32xf32>, tensor<3x192xf32>, tensor<3x256xf32>, tensor<1x1xi32>) {
  %6 = stablehlo.slice %1 [0:64] : (tensor<205xi32>) -> tensor<64xi32>
  %7 = stablehlo.constant dense<96> : tensor<64xi32>
  %8 = stablehlo.compare GE, %6, %7, SIGNED : (tensor<64xi32>, tensor<64xi32>) -> tensor<64xi1>
  %9 = stablehlo.constant dense<0> : tensor<64xi32>
  %10 = stablehlo.select %8, %9, %6 : tensor<64xi1>, tensor<64xi32>
  %12 = "stablehlo.gather"(%11, %10) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 64>}> : (tensor<96x64xf32>, tensor<64xi32>) -> tensor<64x64xf32>
  %13 = stablehlo.constant dense<2.000000000e+00> : tensor<64x64xf32>
  %14 = stablehlo.multiply %12, %13 : tensor<64x64xf32>
  %15 = stablehlo.reshape %14 : (tensor<64x64xf32>) -> tensor<64x1x64xf32>
  %16 = stablehlo.reshape %15 : (tensor<64x1x64xf32>) -> tensor<64x64xf32>
  %18 = stablehlo.dot_general %16, %17, contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST] : (tensor<64x64xf32>, tensor<8x64xf32>) -> tensor<64x8xf32>
  %19 = stablehlo.reshape %18 : (tensor<64x8xf32>) -> tensor<64x1x8xf32>
  %20 = stablehlo.reshape %19 : (tensor<64x1x8xf32>) -> tensor<64x8xf32>
  %21 = stablehlo.logistic %20 : tensor<64x8xf32>
  %23 = stablehlo.broadcast_in_dim %22, dims = [1] : (tensor<8xf32>) -> tensor<64x8xf32>
  %24 = stablehlo.add %21, %23 : tensor<64x8xf32>
  %25 = stablehlo.compare EQ, %24, %24, FLOAT : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xi1>
  %26 = stablehlo.constant dense<0xFF800000> : tensor<64x8xf32>
  %27 = stablehlo.select %25, %24, %26 : tensor<64x8xi1>, tensor<64x8xf32>
  %28 = stablehlo.reshape %27 : (tensor<64x8xf32>) -> tensor<256x2xf32>
  %29 = stablehlo.broadcast_in_dim %28, dims = [0, 1] : (tensor<256x2xf32>) -> tensor<256x2x2xf32>
  %30 = stablehlo.broadcast_in_dim %28, dims = [0, 2] : (tensor<256x2xf32>) -> tensor<256x2x2xf32>
  %31 = stablehlo.iota dim = 1 : tensor<256x2x2xi32>
  %32 = stablehlo.iota dim = 2 : tensor<256x2x2xi32>
  %33 = stablehlo.compare LT, %32, %31, SIGNED : (tensor<256x2x2xi32>, tensor<256x2x2xi32>) -> tensor<256x2x2xi1>
  %34 = stablehlo.compare GT, %30, %29, FLOAT : (tensor<256x2x2xf32>, tensor<256x2x2xf32>) -> tensor<256x2x2xi1>
  %35 = stablehlo.compare EQ, %30, %29, FLOAT : (tensor<256x2x2xf32>, tensor<256x2x2xf32>) -> tensor<256x2x2xi1>
  %36 = stablehlo.and %35, %33 : tensor<256x2x2xi1>
  %37 = stablehlo.or %34, %36 : tensor<256x2x2xi1>
  %38 = stablehlo.convert %37 : (tensor<256x2x2xi1>) -> tensor<256x2x2xi32>
  %39 = stablehlo.constant dense<0> : tensor<i32>
  %40 = stablehlo.reduce(%38 init: %39) applies stablehlo.add across dimensions = [2] : (tensor<256x2x2xi32>, tensor<i32>) -> tensor<256x2xi32>
  %41 = stablehlo.constant dense<2> : tensor<256x2xi32>
  %42 = stablehlo.compare LT, %40, %41, SIGNED : (tensor<256x2xi32>, tensor<256x2xi32>) -> tensor<256x2xi1>
  %43 = stablehlo.constant dense<0.000000000e+00> : tensor<256x2xf32>
  %44 = stablehlo.select %42, %28, %43 : tensor<256x2xi1>, tensor<256x2xf32>
  %45 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %46 = stablehlo.reduce(%44 init: %45) applies stablehlo.add across dimensions = [1] : (tensor<256x2xf32>, tensor<f32>) -> tensor<256xf32>
  %47 = stablehlo.reshape %46 : (tensor<256xf32>) -> tensor<64x4xf32>
  %48 = stablehlo.compare EQ, %47, %47, FLOAT : (tensor<64x4xf32>, tensor<64x4xf32>) -> tensor<64x4xi1>
  %49 = stablehlo.constant dense<0xFF800000> : tensor<64x4xf32>
  %50 = stablehlo.select %48, %47, %49 : tensor<64x4xi1>, tensor<64x4xf32>
  %51 = stablehlo.broadcast_in_dim %50, dims = [0, 1] : (tensor<64x4xf32>) -> tensor<64x4x4xf32>
  %52 = stablehlo.broadcast_in_dim %50, dims = [0, 2] : (tensor<64x4xf32>) -> tensor<64x4x4xf32>
  %53 = stablehlo.iota dim = 1 : tensor<64x4x4xi32>
  %54 = stablehlo.iota dim = 2 : tensor<64x4x4xi32>
  %55 = stablehlo.compare LT, %54, %53, SIGNED : (tensor<64x4x4xi32>, tensor<64x4x4xi32>) -> tensor<64x4x4xi1>
  %56 = stablehlo.compare GT, %52, %51, FLOAT : (tensor<64x4x4xf32>, tensor<64x4x4xf32>) -> tensor<64x4x4xi1>
  %57 = stablehlo.compare EQ, %52, %51, FLOAT : (tensor<64x4x4xf32>, tensor<64x4x4xf32>) -> tensor<64x4x4xi1>
  %58 = stablehlo.and %57, %55 : tensor<64x4x4xi1>
  %59 = stablehlo.or %56, %58 : tensor<64x4x4xi1>
  %60 = stablehlo.convert %59 : (tensor<64x4x4xi1>) -> tensor<64x4x4xi32>
  %61 = stablehlo.constant dense<0> : tensor<i32>
  %62 = stablehlo.reduce(%60 init: %61) applies stablehlo.add across dimensions = [2] : (tensor<64x4x4xi32>, tensor<i32>) -> tensor<64x4xi32>
  %63 = stablehlo.constant dense<2> : tensor<64x4xi32>
  %64 = stablehlo.compare LT, %62, %63, SIGNED : (tensor<64x4xi32>, tensor<64x4xi32>) -> tensor<64x4xi1>
  %65 = stablehlo.broadcast_in_dim %64, dims = [0, 1] : (tensor<64x4xi1>) -> tensor<64x4x2xi1>
  %66 = stablehlo.reshape %65 : (tensor<64x4x2xi1>) -> tensor<64x8xi1>
  %67 = stablehlo.constant dense<0xFF800000> : tensor<64x8xf32>
  %68 = stablehlo.select %66, %27, %67 : tensor<64x8xi1>, tensor<64x8xf32>
  %69 = stablehlo.broadcast_in_dim %68, dims = [0, 1] : (tensor<64x8xf32>) -> tensor<64x8x8xf32>
  %70 = stablehlo.broadcast_in_dim %68, dims = [0, 2] : (tensor<64x8xf32>) -> tensor<64x8x8xf32>
  %71 = stablehlo.iota dim = 1 : tensor<64x8x8xi32>
  %72 = stablehlo.iota dim = 2 : tensor<64x8x8xi32>
  %73 = stablehlo.compare LT, %72, %71, SIGNED : (tensor<64x8x8xi32>, tensor<64x8x8xi32>) -> tensor<64x8x8xi1>
  %74 = stablehlo.compare GT, %70, %69, FLOAT : (tensor<64x8x8xf32>, tensor<64x8x8xf32>) -> tensor<64x8x8xi1>
  %75 = stablehlo.compare EQ, %70, %69, FLOAT : (tensor<64x8x8xf32>, tensor<64x8x8xf32>) -> tensor<64x8x8xi1>
  %76 = stablehlo.and %75, %73 : tensor<64x8x8xi1>
  %77 = stablehlo.or %74, %76 : tensor<64x8x8xi1>
  %78 = stablehlo.convert %77 : (tensor<64x8x8xi1>) -> tensor<64x8x8xi32>
  %79 = stablehlo.constant dense<0> : tensor<i32>
  %80 = stablehlo.reduce(%78 init: %79) applies stablehlo.add across dimensions = [2] : (tensor<64x8x8xi32>, tensor<i32>) -> tensor<64x8xi32>
  %81 = stablehlo.iota dim = 1 : tensor<64x8xi32>
  %82 = stablehlo.iota dim = 1 : tensor<64x2x8xi32>
  %83 = stablehlo.broadcast_in_dim %80, dims = [0, 2] : (tensor<64x8xi32>) -> tensor<64x2x8xi32>
  %84 = stablehlo.compare EQ, %83, %82, SIGNED : (tensor<64x2x8xi32>, tensor<64x2x8xi32>) -> tensor<64x2x8xi1>
  %85 = stablehlo.broadcast_in_dim %81, dims = [0, 2] : (tensor<64x8xi32>) -> tensor<64x2x8xi32>
  %86 = stablehlo.constant dense<0> : tensor<64x2x8xi32>
  %87 = stablehlo.select %84, %85, %86 : tensor<64x2x8xi1>, tensor<64x2x8xi32>
  %88 = stablehlo.constant dense<0> : tensor<i32>
  %89 = stablehlo.reduce(%87 init: %88) applies stablehlo.add across dimensions = [2] : (tensor<64x2x8xi32>, tensor<i32>) -> tensor<64x2xi32>
  %90 = stablehlo.iota dim = 1 : tensor<64x2x8xi32>
  %91 = stablehlo.broadcast_in_dim %80, dims = [0, 2] : (tensor<64x8xi32>) -> tensor<64x2x8xi32>
  %92 = stablehlo.compare EQ, %91, %90, SIGNED : (tensor<64x2x8xi32>, tensor<64x2x8xi32>) -> tensor<64x2x8xi1>
  %93 = stablehlo.broadcast_in_dim %21, dims = [0, 2] : (tensor<64x8xf32>) -> tensor<64x2x8xf32>
  %94 = stablehlo.constant dense<0.000000000e+00> : tensor<64x2x8xf32>
  %95 = stablehlo.select %92, %93, %94 : tensor<64x2x8xi1>, tensor<64x2x8xf32>
  %96 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %97 = stablehlo.reduce(%95 init: %96) applies stablehlo.add across dimensions = [2] : (tensor<64x2x8xf32>, tensor<f32>) -> tensor<64x2xf32>
  %98 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %99 = stablehlo.reduce(%97 init: %98) applies stablehlo.add across dimensions = [1] : (tensor<64x2xf32>, tensor<f32>) -> tensor<64xf32>
  %100 = stablehlo.constant dense<0.000000000e+00> : tensor<64xf32>
  %101 = stablehlo.add %99, %100 : tensor<64xf32>
  %102 = stablehlo.broadcast_in_dim %101, dims = [0] : (tensor<64xf32>) -> tensor<64x2xf32>
  %103 = stablehlo.divide %97, %102 : tensor<64x2xf32>
  %104 = stablehlo.constant dense<2.500000000e+00> : tensor<64x2xf32>
  %105 = stablehlo.multiply %103, %104 : tensor<64x2xf32>
  %106 = stablehlo.reshape %89 : (tensor<64x2xi32>) -> tensor<64x1x2xi32>
  %107 = stablehlo.reshape %106 : (tensor<64x1x2xi32>) -> tensor<64x2xi32>
  %108 = stablehlo.reshape %105 : (tensor<64x2xf32>) -> tensor<64x1x2xf32>
  %109 = stablehlo.reshape %108 : (tensor<64x1x2xf32>) -> tensor<64x2xf32>
  %110 = stablehlo.iota dim = 2 : tensor<64x2x8xi32>
  %111 = stablehlo.broadcast_in_dim %107, dims = [0, 1] : (tensor<64x2xi32>) -> tensor<64x2x8xi32>
  %112 = stablehlo.compare EQ, %111, %110, SIGNED : (tensor<64x2x8xi32>, tensor<64x2x8xi32>) -> tensor<64x2x8xi1>
  %113 = stablehlo.broadcast_in_dim %109, dims = [0, 1] : (tensor<64x2xf32>) -> tensor<64x2x8xf32>
  %114 = stablehlo.constant dense<0.000000000e+00> : tensor<64x2x8xf32>
  %115 = stablehlo.select %112, %113, %114 : tensor<64x2x8xi1>, tensor<64x2x8xf32>
  %116 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %117 = stablehlo.reduce(%115 init: %116) applies stablehlo.add across dimensions = [1] : (tensor<64x2x8xf32>, tensor<f32>) -> tensor<64x8xf32>
  %118 = stablehlo.reshape %14 : (tensor<64x64xf32>) -> tensor<64x1x64xf32>
  %119 = stablehlo.reshape %118 : (tensor<64x1x64xf32>) -> tensor<64x64xf32>
  %123 = stablehlo.convert %120 : (tensor<512x64xui8>) -> tensor<512x64xf32>
  %124 = stablehlo.reshape %123 : (tensor<512x64xf32>) -> tensor<512x2x32xf32>
  %125 = stablehlo.convert %121 : (tensor<512x2xbf16>) -> tensor<512x2xf32>
  %126 = stablehlo.broadcast_in_dim %125, dims = [0, 1] : (tensor<512x2xf32>) -> tensor<512x2x32xf32>
  %127 = stablehlo.multiply %124, %126 : tensor<512x2x32xf32>
  %128 = stablehlo.convert %122 : (tensor<512x2xbf16>) -> tensor<512x2xf32>
  %129 = stablehlo.broadcast_in_dim %128, dims = [0, 1] : (tensor<512x2xf32>) -> tensor<512x2x32xf32>
  %130 = stablehlo.add %127, %129 : tensor<512x2x32xf32>
  %131 = stablehlo.reshape %130 : (tensor<512x2x32xf32>) -> tensor<512x64xf32>
  %132 = stablehlo.reshape %131 : (tensor<512x64xf32>) -> tensor<8x64x64xf32>
  %133 = stablehlo.dot_general %119, %132, contracting_dims = [1] x [2], precision = [HIGHEST, HIGHEST] : (tensor<64x64xf32>, tensor<8x64x64xf32>) -> tensor<64x8x64xf32>
  %134 = stablehlo.slice %133 [0:64, 0:8, 0:32] : (tensor<64x8x64xf32>) -> tensor<64x8x32xf32>
  %135 = stablehlo.slice %133 [0:64, 0:8, 32:64] : (tensor<64x8x64xf32>) -> tensor<64x8x32xf32>
  %136 = stablehlo.logistic %134 : tensor<64x8x32xf32>
  %137 = stablehlo.multiply %134, %136 : tensor<64x8x32xf32>
  %138 = stablehlo.multiply %137, %135 : tensor<64x8x32xf32>
  %139 = stablehlo.constant dense<0.000000000e+00> : tensor<64x8xf32>
  %140 = stablehlo.compare NE, %117, %139, FLOAT : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xi1>
  %141 = stablehlo.broadcast_in_dim %140, dims = [0, 1] : (tensor<64x8xi1>) -> tensor<64x8x32xi1>
  %142 = stablehlo.broadcast_in_dim %117, dims = [0, 1] : (tensor<64x8xf32>) -> tensor<64x8x32xf32>
  %143 = stablehlo.multiply %138, %142 : tensor<64x8x32xf32>
  %144 = stablehlo.constant dense<0.000000000e+00> : tensor<64x8x32xf32>
  %145 = stablehlo.select %141, %143, %144 : tensor<64x8x32xi1>, tensor<64x8x32xf32>
  %149 = stablehlo.convert %146 : (tensor<512x32xui8>) -> tensor<512x32xf32>
  %150 = stablehlo.reshape %149 : (tensor<512x32xf32>) -> tensor<512x1x32xf32>
  %151 = stablehlo.convert %147 : (tensor<512x1xbf16>) -> tensor<512x1xf32>
  %152 = stablehlo.broadcast_in_dim %151, dims = [0, 1] : (tensor<512x1xf32>) -> tensor<512x1x32xf32>
  %153 = stablehlo.multiply %150, %152 : tensor<512x1x32xf32>
  %154 = stablehlo.convert %148 : (tensor<512x1xbf16>) -> tensor<512x1xf32>
  %155 = stablehlo.broadcast_in_dim %154, dims = [0, 1] : (tensor<512x1xf32>) -> tensor<512x1x32xf32>
  %156 = stablehlo.add %153, %155 : tensor<512x1x32xf32>
  %157 = stablehlo.reshape %156 : (tensor<512x1x32xf32>) -> tensor<512x32xf32>
  %158 = stablehlo.reshape %157 : (tensor<512x32xf32>) -> tensor<8x64x32xf32>
  %159 = stablehlo.dot_general %145, %158, contracting_dims = [1, 2] x [0, 2], precision = [HIGHEST, HIGHEST] : (tensor<64x8x32xf32>, tensor<8x64x32xf32>) -> tensor<64x64xf32>
  %160 = stablehlo.reshape %159 : (tensor<64x64xf32>) -> tensor<64x1x64xf32>
  %161 = stablehlo.reshape %160 : (tensor<64x1x64xf32>) -> tensor<64x64xf32>
  %162 = stablehlo.reshape %161 : (tensor<64x64xf32>) -> tensor<1x64x64xf32>
  %163 = stablehlo.slice %1 [128:129] : (tensor<205xi32>) -> tensor<1xi32>
  %164 = "stablehlo.gather"(%4, %163) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 192>}> : (tensor<3x192xf32>, tensor<1xi32>) -> tensor<1x192xf32>
  %165 = stablehlo.slice %1 [129:130] : (tensor<205xi32>) -> tensor<1xi32>
  %166 = stablehlo.constant dense<0> : tensor<1xi32>
  %167 = stablehlo.compare NE, %165, %166, SIGNED : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
  %168 = stablehlo.broadcast_in_dim %167, dims = [0] : (tensor<1xi1>) -> tensor<1x192xi1>
  %169 = stablehlo.constant dense<0.000000000e+00> : tensor<1x192xf32>
  %170 = stablehlo.select %168, %169, %164 : tensor<1x192xi1>, tensor<1x192xf32>
  %171 = stablehlo.reshape %170 : (tensor<1x192xf32>) -> tensor<1x3x64xf32>
  %172 = stablehlo.concatenate %171, %162, dim = 1 : (tensor<1x3x64xf32>, tensor<1x64x64xf32>) -> tensor<1x67x64xf32>
  %174 = stablehlo.reshape %173 : (tensor<256xf32>) -> tensor<64x4xf32>
  %175 = stablehlo.constant dense<0.000000000e+00> : tensor<1x64x64xf32>
  %176 = stablehlo.slice %174 [0:64, 0:1] : (tensor<64x4xf32>) -> tensor<64x1xf32>
  %177 = stablehlo.reshape %176 : (tensor<64x1xf32>) -> tensor<64xf32>
  %178 = stablehlo.broadcast_in_dim %177, dims = [2] : (tensor<64xf32>) -> tensor<1x64x64xf32>
  %179 = stablehlo.slice %172 [0:1, 0:64, 0:64] : (tensor<1x67x64xf32>) -> tensor<1x64x64xf32>
  %180 = stablehlo.multiply %179, %178 : tensor<1x64x64xf32>
  %181 = stablehlo.add %175, %180 : tensor<1x64x64xf32>
  %182 = stablehlo.slice %174 [0:64, 1:2] : (tensor<64x4xf32>) -> tensor<64x1xf32>
  %183 = stablehlo.reshape %182 : (tensor<64x1xf32>) -> tensor<64xf32>
  %184 = stablehlo.broadcast_in_dim %183, dims = [2] : (tensor<64xf32>) -> tensor<1x64x64xf32>
  %185 = stablehlo.slice %172 [0:1, 1:65, 0:64] : (tensor<1x67x64xf32>) -> tensor<1x64x64xf32>
  %186 = stablehlo.multiply %185, %184 : tensor<1x64x64xf32>
  %187 = stablehlo.add %181, %186 : tensor<1x64x64xf32>
  %188 = stablehlo.slice %174 [0:64, 2:3] : (tensor<64x4xf32>) -> tensor<64x1xf32>
  %189 = stablehlo.reshape %188 : (tensor<64x1xf32>) -> tensor<64xf32>
  %190 = stablehlo.broadcast_in_dim %189, dims = [2] : (tensor<64xf32>) -> tensor<1x64x64xf32>
  %191 = stablehlo.slice %172 [0:1, 2:66, 0:64] : (tensor<1x67x64xf32>) -> tensor<1x64x64xf32>
  %192 = stablehlo.multiply %191, %190 : tensor<1x64x64xf32>
  %193 = stablehlo.add %187, %192 : tensor<1x64x64xf32>
  %194 = stablehlo.slice %174 [0:64, 3:4] : (tensor<64x4xf32>) -> tensor<64x1xf32>
  %195 = stablehlo.reshape %194 : (tensor<64x1xf32>) -> tensor<64xf32>
  %196 = stablehlo.broadcast_in_dim %195, dims = [2] : (tensor<64xf32>) -> tensor<1x64x64xf32>
  %197 = stablehlo.slice %172 [0:1, 3:67, 0:64] : (tensor<1x67x64xf32>) -> tensor<1x64x64xf32>
  %198 = stablehlo.multiply %197, %196 : tensor<1x64x64xf32>
  %199 = stablehlo.add %193, %198 : tensor<1x64x64xf32>
  %200 = stablehlo.logistic %199 : tensor<1x64x64xf32>
  %201 = stablehlo.multiply %199, %200 : tensor<1x64x64xf32>
  %202 = stablehlo.reshape %201 : (tensor<1x64x64xf32>) -> tensor<64x64xf32>
  %203 = stablehlo.slice %1 [132:133] : (tensor<205xi32>) -> tensor<1xi32>
  %204 = stablehlo.reshape %203 : (tensor<1xi32>) -> tensor<i32>
  %205 = stablehlo.constant dense<0> : tensor<i32>
  %206 = stablehlo.dynamic_slice %172, %205, %204, %205, sizes = [1, 3, 64] : (tensor<1x67x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x3x64xf32>
  %207 = stablehlo.reshape %206 : (tensor<1x3x64xf32>) -> tensor<1x192xf32>
  %208 = stablehlo.slice %1 [128:129] : (tensor<205xi32>) -> tensor<1xi32>
  %209 = "stablehlo.scatter"(%4, %208, %207) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
  ^bb0(%210: tensor<f32>, %211: tensor<f32>):
    stablehlo.return %211 : tensor<f32>
  }) : (tensor<3x192xf32>, tensor<1xi32>, tensor<1x192xf32>) -> tensor<3x192xf32>
  %212 = stablehlo.slice %202 [0:64, 48:50] : (tensor<64x64xf32>) -> tensor<64x2xf32>
  %213 = stablehlo.reshape %212 : (tensor<64x2xf32>) -> tensor<64x1x2xf32>
  %214 = stablehlo.reshape %213 : (tensor<64x1x2xf32>) -> tensor<64x2xf32>
  %216 = stablehlo.broadcast_in_dim %215, dims = [1] : (tensor<2xf32>) -> tensor<64x2xf32>
  %217 = stablehlo.add %214, %216 : tensor<64x2xf32>
  %218 = stablehlo.constant dense<2.000000000e+01> : tensor<64x2xf32>
  %219 = stablehlo.minimum %217, %218 : tensor<64x2xf32>
  %220 = stablehlo.exponential %219 : tensor<64x2xf32>
  %221 = stablehlo.log_plus_one %220 : tensor<64x2xf32>
  %222 = stablehlo.constant dense<2.000000000e+01> : tensor<64x2xf32>
  %223 = stablehlo.compare GT, %217, %222, FLOAT : (tensor<64x2xf32>, tensor<64x2xf32>) -> tensor<64x2xi1>
  %224 = stablehlo.select %223, %217, %221 : tensor<64x2xi1>, tensor<64x2xf32>
  %225 = stablehlo.slice %202 [0:64, 0:16] : (tensor<64x64xf32>) -> tensor<64x16xf32>
  %226 = stablehlo.reshape %225 : (tensor<64x16xf32>) -> tensor<64x1x16xf32>
  %227 = stablehlo.multiply %226, %226 : tensor<64x1x16xf32>
  %228 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %229 = stablehlo.reduce(%227 init: %228) applies stablehlo.add across dimensions = [2] : (tensor<64x1x16xf32>, tensor<f32>) -> tensor<64x1xf32>
  %230 = stablehlo.constant dense<0.000000000e+00> : tensor<64x1xf32>
  %231 = stablehlo.add %229, %230 : tensor<64x1xf32>
  %232 = stablehlo.sqrt %231 : tensor<64x1xf32>
  %233 = stablehlo.broadcast_in_dim %232, dims = [0, 1] : (tensor<64x1xf32>) -> tensor<64x1x16xf32>
  %234 = stablehlo.divide %226, %233 : tensor<64x1x16xf32>
  %235 = stablehlo.broadcast_in_dim %234, dims = [0, 1, 3] : (tensor<64x1x16xf32>) -> tensor<64x1x2x16xf32>
  %236 = stablehlo.reshape %235 : (tensor<64x1x2x16xf32>) -> tensor<64x2x16xf32>
  %237 = stablehlo.reshape %236 : (tensor<64x2x16xf32>) -> tensor<64x1x2x16xf32>
  %238 = stablehlo.slice %202 [0:64, 16:32] : (tensor<64x64xf32>) -> tensor<64x16xf32>
  %239 = stablehlo.reshape %238 : (tensor<64x16xf32>) -> tensor<64x1x16xf32>
  %240 = stablehlo.multiply %239, %239 : tensor<64x1x16xf32>
  %241 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %242 = stablehlo.reduce(%240 init: %241) applies stablehlo.add across dimensions = [2] : (tensor<64x1x16xf32>, tensor<f32>) -> tensor<64x1xf32>
  %243 = stablehlo.constant dense<0.000000000e+00> : tensor<64x1xf32>
  %244 = stablehlo.add %242, %243 : tensor<64x1xf32>
  %245 = stablehlo.sqrt %244 : tensor<64x1xf32>
  %246 = stablehlo.broadcast_in_dim %245, dims = [0, 1] : (tensor<64x1xf32>) -> tensor<64x1x16xf32>
  %247 = stablehlo.divide %239, %246 : tensor<64x1x16xf32>
  %248 = stablehlo.broadcast_in_dim %247, dims = [0, 1, 3] : (tensor<64x1x16xf32>) -> tensor<64x1x2x16xf32>
  %249 = stablehlo.reshape %248 : (tensor<64x1x2x16xf32>) -> tensor<64x2x16xf32>
  %250 = stablehlo.reshape %249 : (tensor<64x2x16xf32>) -> tensor<64x1x2x16xf32>
  %251 = stablehlo.slice %202 [0:64, 32:48] : (tensor<64x64xf32>) -> tensor<64x16xf32>
  %252 = stablehlo.reshape %251 : (tensor<64x16xf32>) -> tensor<64x2x8xf32>
  %253 = stablehlo.reshape %252 : (tensor<64x2x8xf32>) -> tensor<64x1x2x8xf32>
  %254 = stablehlo.exponential %215 : tensor<2xf32>
  %255 = stablehlo.negate %254 : tensor<2xf32>
  %256 = stablehlo.broadcast_in_dim %255, dims = [1] : (tensor<2xf32>) -> tensor<64x2xf32>
  %257 = stablehlo.multiply %224, %256 : tensor<64x2xf32>
  %258 = stablehlo.exponential %257 : tensor<64x2xf32>
  %259 = stablehlo.reshape %258 : (tensor<64x2xf32>) -> tensor<64x1x2xf32>
  %260 = stablehlo.slice %202 [0:64, 50:52] : (tensor<64x64xf32>) -> tensor<64x2xf32>
  %261 = stablehlo.reshape %260 : (tensor<64x2xf32>) -> tensor<64x1x2xf32>
  %262 = stablehlo.reshape %261 : (tensor<64x1x2xf32>) -> tensor<64x2xf32>
  %263 = stablehlo.logistic %262 : tensor<64x2xf32>
  %264 = stablehlo.reshape %263 : (tensor<64x2xf32>) -> tensor<64x1x2xf32>
  %265 = stablehlo.slice %1 [128:129] : (tensor<205xi32>) -> tensor<1xi32>
  %266 = "stablehlo.gather"(%5, %265) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 256>}> : (tensor<3x256xf32>, tensor<1xi32>) -> tensor<1x256xf32>
  %267 = stablehlo.slice %1 [129:130] : (tensor<205xi32>) -> tensor<1xi32>
  %268 = stablehlo.constant dense<0> : tensor<1xi32>
  %269 = stablehlo.compare NE, %267, %268, SIGNED : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
  %270 = stablehlo.broadcast_in_dim %269, dims = [0] : (tensor<1xi1>) -> tensor<1x256xi1>
  %271 = stablehlo.constant dense<0.000000000e+00> : tensor<1x256xf32>
  %272 = stablehlo.select %270, %271, %266 : tensor<1x256xi1>, tensor<1x256xf32>
  %273 = stablehlo.reshape %272 : (tensor<1x256xf32>) -> tensor<1x2x16x8xf32>
  %274 = stablehlo.constant dense<0.000000000e+00> : tensor<64x1x2x8xf32>
  %275 = stablehlo.slice %1 [132:133] : (tensor<205xi32>) -> tensor<1xi32>
  %276 = stablehlo.reshape %275 : (tensor<1xi32>) -> tensor<i32>
  %277 = stablehlo.constant dense<0> : tensor<i32>
  %278:3 = stablehlo.while(%279 = %277, %280 = %273, %281 = %274) : tensor<i32>, tensor<1x2x16x8xf32>, tensor<64x1x2x8xf32> cond {
  %282 = stablehlo.compare LT, %279, %276, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.return %282 : tensor<i1>
  } do {
  %283 = stablehlo.constant dense<0> : tensor<i32>
  %284 = stablehlo.dynamic_slice %237, %279, %283, %283, %283, sizes = [1, 1, 2, 16] : (tensor<64x1x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x1x2x16xf32>
  %285 = stablehlo.reshape %284 : (tensor<1x1x2x16xf32>) -> tensor<1x2x16xf32>
  %286 = stablehlo.constant dense<0> : tensor<i32>
  %287 = stablehlo.dynamic_slice %250, %279, %286, %286, %286, sizes = [1, 1, 2, 16] : (tensor<64x1x2x16xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x1x2x16xf32>
  %288 = stablehlo.reshape %287 : (tensor<1x1x2x16xf32>) -> tensor<1x2x16xf32>
  %289 = stablehlo.constant dense<0> : tensor<i32>
  %290 = stablehlo.dynamic_slice %253, %279, %289, %289, %289, sizes = [1, 1, 2, 8] : (tensor<64x1x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x1x2x8xf32>
  %291 = stablehlo.reshape %290 : (tensor<1x1x2x8xf32>) -> tensor<1x2x8xf32>
  %292 = stablehlo.constant dense<0> : tensor<i32>
  %293 = stablehlo.dynamic_slice %259, %279, %292, %292, sizes = [1, 1, 2] : (tensor<64x1x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x1x2xf32>
  %294 = stablehlo.reshape %293 : (tensor<1x1x2xf32>) -> tensor<1x2xf32>
  %295 = stablehlo.constant dense<0> : tensor<i32>
  %296 = stablehlo.dynamic_slice %264, %279, %295, %295, sizes = [1, 1, 2] : (tensor<64x1x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x1x2xf32>
  %297 = stablehlo.reshape %296 : (tensor<1x1x2xf32>) -> tensor<1x2xf32>
  %298 = stablehlo.broadcast_in_dim %294, dims = [0, 1] : (tensor<1x2xf32>) -> tensor<1x2x16x8xf32>
  %299 = stablehlo.multiply %280, %298 : tensor<1x2x16x8xf32>
  %300 = stablehlo.broadcast_in_dim %288, dims = [0, 1, 2] : (tensor<1x2x16xf32>) -> tensor<1x2x16x8xf32>
  %301 = stablehlo.multiply %299, %300 : tensor<1x2x16x8xf32>
  %302 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %303 = stablehlo.reduce(%301 init: %302) applies stablehlo.add across dimensions = [2] : (tensor<1x2x16x8xf32>, tensor<f32>) -> tensor<1x2x8xf32>
  %304 = stablehlo.subtract %291, %303 : tensor<1x2x8xf32>
  %305 = stablehlo.broadcast_in_dim %297, dims = [0, 1] : (tensor<1x2xf32>) -> tensor<1x2x8xf32>
  %306 = stablehlo.multiply %304, %305 : tensor<1x2x8xf32>
  %307 = stablehlo.broadcast_in_dim %306, dims = [0, 1, 3] : (tensor<1x2x8xf32>) -> tensor<1x2x16x8xf32>
  %308 = stablehlo.broadcast_in_dim %288, dims = [0, 1, 2] : (tensor<1x2x16xf32>) -> tensor<1x2x16x8xf32>
  %309 = stablehlo.multiply %308, %307 : tensor<1x2x16x8xf32>
  %310 = stablehlo.add %299, %309 : tensor<1x2x16x8xf32>
  %311 = stablehlo.broadcast_in_dim %285, dims = [0, 1, 2] : (tensor<1x2x16xf32>) -> tensor<1x2x16x8xf32>
  %312 = stablehlo.multiply %310, %311 : tensor<1x2x16x8xf32>
  %313 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %314 = stablehlo.reduce(%312 init: %313) applies stablehlo.add across dimensions = [2] : (tensor<1x2x16x8xf32>, tensor<f32>) -> tensor<1x2x8xf32>
  %315 = stablehlo.reshape %314 : (tensor<1x2x8xf32>) -> tensor<1x1x2x8xf32>
  %316 = stablehlo.constant dense<0> : tensor<i32>
  %317 = stablehlo.dynamic_update_slice %281, %315, %279, %316, %316, %316 : (tensor<64x1x2x8xf32>, tensor<1x1x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<64x1x2x8xf32>
  %318 = stablehlo.constant dense<1> : tensor<i32>
  %319 = stablehlo.add %279, %318 : tensor<i32>
  stablehlo.return %319, %310, %317 : tensor<i32>, tensor<1x2x16x8xf32>, tensor<64x1x2x8xf32>
  }
  %320 = stablehlo.reshape %278#1 : (tensor<1x2x16x8xf32>) -> tensor<1x2x16x8xf32>
  %321 = stablehlo.reshape %278#2 : (tensor<64x1x2x8xf32>) -> tensor<64x1x2x8xf32>
  %322 = stablehlo.reshape %320 : (tensor<1x2x16x8xf32>) -> tensor<1x256xf32>
  %323 = stablehlo.slice %1 [128:129] : (tensor<205xi32>) -> tensor<1xi32>
  %324 = "stablehlo.scatter"(%5, %323, %322) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
  ^bb0(%325: tensor<f32>, %326: tensor<f32>):
    stablehlo.return %326 : tensor<f32>
  }) : (tensor<3x256xf32>, tensor<1xi32>, tensor<1x256xf32>) -> tensor<3x256xf32>
  %327 = stablehlo.reshape %321 : (tensor<64x1x2x8xf32>) -> tensor<64x16xf32>
  %328 = stablehlo.reshape %327 : (tensor<64x16xf32>) -> tensor<64x1x16xf32>
  %329 = stablehlo.reshape %328 : (tensor<64x1x16xf32>) -> tensor<64x16xf32>
  %330 = stablehlo.slice %1 [131:132] : (tensor<205xi32>) -> tensor<1xi32>
  %331 = "stablehlo.gather"(%329, %330) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 16>}> : (tensor<64x16xf32>, tensor<1xi32>) -> tensor<1x16xf32>
  %332 = stablehlo.reshape %331 : (tensor<1x16xf32>) -> tensor<1x1x16xf32>
  %333 = stablehlo.reshape %332 : (tensor<1x1x16xf32>) -> tensor<1x16xf32>
  %334 = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %335 = stablehlo.reduce(%333 init: %334) applies stablehlo.maximum across dimensions = [1] : (tensor<1x16xf32>, tensor<f32>) -> tensor<1xf32>
  %336 = stablehlo.broadcast_in_dim %335, dims = [0] : (tensor<1xf32>) -> tensor<1x16xf32>
  %337 = stablehlo.compare EQ, %333, %336, FLOAT : (tensor<1x16xf32>, tensor<1x16xf32>) -> tensor<1x16xi1>
  %338 = stablehlo.iota dim = 1 : tensor<1x16xi32>
  %339 = stablehlo.constant dense<16> : tensor<1x16xi32>
  %340 = stablehlo.select %337, %338, %339 : tensor<1x16xi1>, tensor<1x16xi32>
  %341 = stablehlo.constant dense<16> : tensor<i32>
  %342 = stablehlo.reduce(%340 init: %341) applies stablehlo.minimum across dimensions = [1] : (tensor<1x16xi32>, tensor<i32>) -> tensor<1xi32>
  %343 = stablehlo.slice %333 [0:1, 0:1] : (tensor<1x16xf32>) -> tensor<1x1xf32>
  %344 = stablehlo.reshape %343 : (tensor<1x1xf32>) -> tensor<1xf32>
  %345 = stablehlo.abs %335 : tensor<1xf32>
  %346 = stablehlo.constant dense<0x7F800000> : tensor<1xf32>
  %347 = stablehlo.compare LT, %345, %346, FLOAT : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xi1>
  %348 = stablehlo.abs %344 : tensor<1xf32>
  %349 = stablehlo.constant dense<0x7F800000> : tensor<1xf32>
  %350 = stablehlo.compare LT, %348, %349, FLOAT : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xi1>
  %351 = stablehlo.and %347, %350 : tensor<1xi1>
  %352 = stablehlo.constant dense<-1> : tensor<1xi32>
  %353 = stablehlo.select %351, %342, %352 : tensor<1xi1>, tensor<1xi32>
  %354 = stablehlo.reshape %353 : (tensor<1xi32>) -> tensor<1x1xi32>
  return %2, %3, %209, %324, %354 : tensor<576x32xf32>, tensor<576x32xf32>, tensor<3x192xf32>, tensor<3x256xf32>, tensor<1x1xi32>
}
}
